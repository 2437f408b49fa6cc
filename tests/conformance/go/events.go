package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// header of a record; a nil value is JSON's null, others are base64.
type header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// record is one line of standard input of `produce`, and part of the events of `consume`.
type record struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
	Timestamp int64    `json:"timestamp"`
}

type consumedEvent struct {
	Event string `json:"event"`
	record
	Offset        int64 `json:"offset"`
	TimestampType int8  `json:"timestamp_type"`
	LeaderEpoch   int32 `json:"leader_epoch"`
}

type errorEvent struct {
	Event     string `json:"event"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Error     string `json:"error"`
	Code      int16  `json:"code"`
	Detail    string `json:"detail"`
	Number    *int64 `json:"number,omitempty"`
}

// newErrorEvent names an error as Kafka does where it is one of Kafka's; others have the name CLIENT and code -1.
func newErrorEvent(topic string, partition int32, err error) errorEvent {
	event := errorEvent{"error", topic, partition, "CLIENT", -1, err.Error(), nil}
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		event.Error, event.Code = kafka.Message, kafka.Code
	}
	return event
}

// printer writes events, one a line, from any goroutine. Lines are buffered for short times only.
type printer struct {
	lock     sync.Mutex
	buffer   *bufio.Writer
	surfaced int
}

func newPrinter(to io.Writer) *printer {
	out := &printer{buffer: bufio.NewWriterSize(to, 1<<16)}
	go func() {
		for range time.Tick(20 * time.Millisecond) {
			out.flush()
		}
	}()
	return out
}

func (p *printer) print(event any) {
	line, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.buffer.Write(line)
	p.buffer.WriteByte('\n')
}

// fail prints an error that surfaced, and remembers that there was one.
func (p *printer) fail(event errorEvent) {
	p.print(event)
	p.lock.Lock()
	defer p.lock.Unlock()
	p.surfaced++
}

func (p *printer) errors() int {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.surfaced
}

func (p *printer) flush() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.buffer.Flush()
}

func consumed(from *kgo.Record) consumedEvent {
	headers := make([]header, 0, len(from.Headers))
	for _, one := range from.Headers {
		headers = append(headers, header{one.Key, one.Value})
	}
	return consumedEvent{
		Event: "record",
		record: record{
			from.Topic, from.Partition, from.Key, from.Value, headers, from.Timestamp.UnixMilli(),
		},
		Offset:        from.Offset,
		TimestampType: from.Attrs.TimestampType(),
		LeaderEpoch:   from.LeaderEpoch,
	}
}
