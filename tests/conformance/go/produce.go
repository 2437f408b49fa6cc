package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const longestLine = 64 << 20

var acksByName = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

type acknowledgedEvent struct {
	Event     string `json:"event"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Number    *int64 `json:"number,omitempty"`
}

type producerFlags struct {
	connection                                    *connection
	topic, acks, compression, transaction, ending string
	idempotent                                    bool
	batchMaxBytes, maxInFlight                    int
	linger, deliveryTimeout, duration             time.Duration
	rate                                          float64
	partitions, valueBytes                        int
	first                                         int64
	key                                           string
}

func parseProducerFlags(arguments []string) (*producerFlags, error) {
	f, flags := &producerFlags{}, flag.NewFlagSet("produce", flag.ContinueOnError)
	f.connection = connectionFlags(flags)
	flags.StringVar(&f.topic, "topic", "", "where to; records of standard input may name another")
	flags.StringVar(&f.acks, "acks", "all", "0, 1 or all")
	flags.StringVar(&f.compression, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	flags.BoolVar(&f.idempotent, "idempotent", true, "enable.idempotence; needs -acks all")
	flags.StringVar(&f.transaction, "transactional-id", "", "send all records of standard input in one transaction")
	flags.StringVar(&f.ending, "end", "commit", "commit or abort the transaction")
	flags.IntVar(&f.batchMaxBytes, "batch-max-bytes", 1_000_012, "the library's own limit")
	flags.IntVar(&f.maxInFlight, "max-in-flight", 0, "Produce requests per broker at a time; the library's default where 0")
	flags.DurationVar(&f.linger, "linger", 5*time.Millisecond, "how long a batch waits for more records")
	flags.DurationVar(&f.deliveryTimeout, "delivery-timeout", 0, "until a record fails, from its timestamp on; never where 0, but 2m in a load")
	flags.Float64Var(&f.rate, "rate", 0, "load: numbers per second over all partitions, instead of standard input")
	flags.DurationVar(&f.duration, "duration", 0, "load: for how long; until SIGTERM where 0")
	flags.IntVar(&f.partitions, "partitions", 1, "load: to partitions 0 to N-1, in turns")
	flags.IntVar(&f.valueBytes, "value-bytes", 0, "load: pad values with spaces up to this length")
	flags.Int64Var(&f.first, "first", 0, "load: the first number of each partition")
	flags.StringVar(&f.key, "key", "", "load: key of all records, for example the producer's name; none where empty")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if _, known := acksByName[f.acks]; !known {
		return nil, fmt.Errorf("-acks %s is not known", f.acks)
	}
	if _, known := codecs[f.compression]; !known {
		return nil, fmt.Errorf("-compression %s is not known", f.compression)
	}
	if f.rate > 0 && (f.topic == "" || f.partitions < 1 || f.transaction != "") {
		return nil, errors.New("-rate needs -topic and at least one of -partitions, and has no transactions")
	}
	return f, nil
}

func (f *producerFlags) client() (*kgo.Client, error) {
	options := []kgo.Opt{
		kgo.RequiredAcks(acksByName[f.acks]),
		kgo.ProducerBatchCompression(codecs[f.compression]),
		kgo.ProducerBatchMaxBytes(int32(f.batchMaxBytes)),
		kgo.ProducerLinger(f.linger),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(100_000),
		kgo.DefaultProduceTopic(f.topic),
		kgo.AllowAutoTopicCreation(), // as the Java client does
		kgo.UnknownTopicRetries(-1),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}
	if f.deliveryTimeout == 0 && f.rate > 0 {
		f.deliveryTimeout = 2 * time.Minute
	}
	if f.deliveryTimeout > 0 {
		options = append(options, kgo.RecordDeliveryTimeout(f.deliveryTimeout))
	}
	if !f.idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if f.maxInFlight > 0 {
		options = append(options, kgo.MaxProduceRequestsInflightPerBroker(f.maxInFlight))
	}
	if f.transaction != "" {
		options = append(options, kgo.TransactionalID(f.transaction))
	}
	return f.connection.newClient(options...)
}

func produce(ctx context.Context, arguments []string, out *printer) error {
	f, err := parseProducerFlags(arguments)
	if err != nil {
		return err
	}
	client, err := f.client()
	if err != nil {
		return err
	}
	defer client.Close()
	if f.rate > 0 {
		f.load(ctx, client, out)
		return nil
	}
	records, err := readRecords(os.Stdin)
	if err != nil {
		return err
	}
	if f.transaction != "" {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
	}
	sendAll(ctx, client, records, out)
	if f.transaction != "" {
		ending := kgo.TransactionEndTry(f.ending == "commit")
		if err := client.EndTransaction(context.Background(), ending); err != nil {
			out.fail(newErrorEvent(f.topic, -1, err))
		}
	}
	return nil
}

// sendAll prints an event for each record, in the order of the records.
func sendAll(ctx context.Context, client *kgo.Client, records []*kgo.Record, out *printer) {
	failures := make([]error, len(records))
	var waiting sync.WaitGroup
	waiting.Add(len(records))
	for place, one := range records {
		client.Produce(ctx, one, func(_ *kgo.Record, err error) {
			failures[place] = err
			waiting.Done()
		})
	}
	waiting.Wait()
	for place, one := range records {
		if err := failures[place]; err != nil {
			out.fail(newErrorEvent(one.Topic, one.Partition, err))
		} else {
			out.print(acknowledgedEvent{"acked", one.Topic, one.Partition, one.Offset, nil})
		}
	}
}

// load sends increasing numbers to each partition; a number that failed is not sent again.
func (f *producerFlags) load(ctx context.Context, client *kgo.Client, out *printer) {
	if f.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.duration)
		defer cancel()
	}
	var key []byte
	if f.key != "" {
		key = []byte(f.key)
	}
	began := time.Now()
	for sent := int64(0); ; sent++ {
		due := began.Add(time.Duration(float64(sent) / f.rate * float64(time.Second)))
		select {
		case <-ctx.Done():
			client.Flush(context.Background()) // each record has its own delivery timeout
			return
		case <-time.After(time.Until(due)):
		}
		partition, number := int32(sent%int64(f.partitions)), f.first+sent/int64(f.partitions)
		value := strconv.FormatInt(number, 10)
		value += strings.Repeat(" ", max(0, f.valueBytes-len(value)))
		one := &kgo.Record{Topic: f.topic, Partition: partition, Key: key, Value: []byte(value)}
		// Not the context of the load: its end must not cancel what is already on its way.
		client.Produce(context.Background(), one, func(one *kgo.Record, err error) {
			if err != nil {
				event := newErrorEvent(one.Topic, one.Partition, err)
				event.Number = &number
				out.fail(event)
			} else {
				out.print(acknowledgedEvent{"acked", one.Topic, one.Partition, one.Offset, &number})
			}
		})
	}
}

func readRecords(from io.Reader) ([]*kgo.Record, error) {
	var records []*kgo.Record
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		var read record
		if err := json.Unmarshal(lines.Bytes(), &read); err != nil {
			return nil, fmt.Errorf("line %d of standard input: %w", len(records)+1, err)
		}
		one := &kgo.Record{Topic: read.Topic, Partition: read.Partition, Key: read.Key, Value: read.Value}
		for _, header := range read.Headers {
			one.Headers = append(one.Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
		}
		if read.Timestamp != 0 {
			one.Timestamp = time.UnixMilli(read.Timestamp)
		}
		records = append(records, one)
	}
	return records, lines.Err()
}
