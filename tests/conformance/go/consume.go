package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const leaveTimeout = 30 * time.Second

type numberEvent struct {
	Event     string `json:"event"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Number    int64  `json:"number"`
	Key       string `json:"key"`
}

type assignmentEvent struct {
	Event      string             `json:"event"`
	Partitions map[string][]int32 `json:"partitions"`
}

type consumerFlags struct {
	connection                 *connection
	topics, group, from, reset string
	isolation, protocol        string
	partition, count           int
	heartbeat                  time.Duration
	numbers                    bool
}

func parseConsumerFlags(arguments []string) (*consumerFlags, error) {
	f, flags := &consumerFlags{}, flag.NewFlagSet("consume", flag.ContinueOnError)
	f.connection = connectionFlags(flags)
	flags.StringVar(&f.topics, "topic", "", "`names`, several with commas between")
	flags.StringVar(&f.group, "group", "", "read as a member of this group, and commit what was printed at the end and each second")
	flags.StringVar(&f.protocol, "group-protocol", "classic", "classic or consumer (KIP-848)")
	flags.DurationVar(&f.heartbeat, "heartbeat", 3*time.Second, "heartbeat.interval.ms of a group's member")
	flags.IntVar(&f.partition, "partition", -1, "read this partition, without a group; all of them where -1")
	flags.StringVar(&f.from, "from", "earliest", "earliest, latest, an offset, or @ and a timestamp in milliseconds; of a group, where nothing is committed")
	flags.StringVar(&f.reset, "reset", "earliest", "auto.offset.reset: earliest, latest or none")
	flags.StringVar(&f.isolation, "isolation", "read_uncommitted", "isolation.level: read_uncommitted or read_committed")
	flags.IntVar(&f.count, "count", 0, "end after so many records; at SIGTERM where 0")
	flags.BoolVar(&f.numbers, "numbers", false, "print records as numbers, as `produce -rate` writes them")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if f.topics == "" || (f.group != "" && f.partition >= 0) {
		return nil, errors.New("-topic is missing, or -group and -partition are both there")
	}
	return f, nil
}

func offset(text string) (kgo.Offset, error) {
	switch text {
	case "earliest":
		return kgo.NewOffset().AtStart(), nil
	case "latest":
		return kgo.NewOffset().AtEnd(), nil
	case "none":
		return kgo.NoResetOffset(), nil
	}
	number, err := strconv.ParseInt(strings.TrimPrefix(text, "@"), 10, 64)
	if err != nil {
		return kgo.Offset{}, fmt.Errorf("%s is not earliest, latest, an offset or @timestamp", text)
	}
	if strings.HasPrefix(text, "@") {
		return kgo.NewOffset().AfterMilli(number), nil
	}
	return kgo.NewOffset().At(number), nil
}

func (f *consumerFlags) options(out *printer) ([]kgo.Opt, error) {
	from, err := offset(f.from)
	if err != nil {
		return nil, err
	}
	reset, err := offset(f.reset)
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{kgo.ConsumeStartOffset(from), kgo.ConsumeResetOffset(reset), kgo.FetchMaxWait(500 * time.Millisecond)}
	options = append(options, kgo.MetadataMinAge(100*time.Millisecond))
	if f.isolation == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	topics := strings.Split(f.topics, ",")
	if f.group == "" && f.partition >= 0 {
		wanted := map[string]map[int32]kgo.Offset{}
		for _, topic := range topics {
			wanted[topic] = map[int32]kgo.Offset{int32(f.partition): from}
		}
		return append(options, kgo.ConsumePartitions(wanted)), nil
	}
	options = append(options, kgo.ConsumeTopics(topics...))
	if f.group == "" {
		return options, nil
	}
	report := func(name string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			if len(partitions) > 0 {
				out.print(assignmentEvent{name, partitions})
			}
		}
	}
	revoked := report("revoked")
	if f.protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	}
	return append(options,
		kgo.ConsumerGroup(f.group),
		kgo.HeartbeatInterval(f.heartbeat),
		kgo.AutoCommitMarks(),
		kgo.AutoCommitInterval(time.Second),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(report("assigned")),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, partitions map[string][]int32) {
			if err := client.CommitMarkedOffsets(ctx); err != nil {
				out.fail(newErrorEvent("", -1, err))
			}
			revoked(ctx, client, partitions)
		}),
		kgo.OnPartitionsLost(report("lost")),
	), nil
}

func consume(ctx context.Context, arguments []string, out *printer) error {
	f, err := parseConsumerFlags(arguments)
	if err != nil {
		return err
	}
	options, err := f.options(out)
	if err != nil {
		return err
	}
	client, err := f.connection.newClient(options...)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for printed := 0; f.count == 0 || printed < f.count; {
		fetches := client.PollRecords(ctx, remaining(f.count, printed))
		if ctx.Err() != nil {
			break
		}
		fatal := false
		fetches.EachError(func(topic string, partition int32, err error) {
			out.fail(newErrorEvent(topic, partition, err))
			fatal = true
		})
		if fatal && f.count > 0 {
			break // a load goes on, and is judged by its exit code
		}
		for _, one := range inOrder(fetches.Records()) {
			f.print(out, one)
			printed++
			if f.group != "" {
				client.MarkCommitRecords(one)
			}
		}
		client.AllowRebalance()
	}
	if f.group != "" {
		ending, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		if err := client.CommitMarkedOffsets(ending); err != nil {
			out.fail(newErrorEvent("", -1, err))
		}
	}
	return nil
}

func remaining(count, printed int) int {
	if count == 0 {
		return 10_000
	}
	return count - printed
}

func inOrder(records []*kgo.Record) []*kgo.Record {
	sort.SliceStable(records, func(i, j int) bool { return records[i].Partition < records[j].Partition })
	return records
}

func (f *consumerFlags) print(out *printer, one *kgo.Record) {
	if !f.numbers {
		out.print(consumed(one))
		return
	}
	number, err := strconv.ParseInt(strings.TrimSpace(string(one.Value)), 10, 64)
	if err != nil {
		out.fail(newErrorEvent(one.Topic, one.Partition, fmt.Errorf("offset %d holds no number", one.Offset)))
		return
	}
	out.print(numberEvent{"number", one.Topic, one.Partition, one.Offset, number, string(one.Key)})
}
