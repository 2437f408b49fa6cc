package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const adminTimeout = time.Minute

type adminFlags struct {
	connection                       *connection
	operation, topic, group, configs string
	partitions, replicas             int
	timestamp                        int64
}

type resultEvent struct {
	Event  string `json:"event"`
	Result any    `json:"result"`
}

type partitionResult struct {
	Partition int32   `json:"partition"`
	Leader    int32   `json:"leader"`
	Replicas  []int32 `json:"replicas"`
}

var operations = map[string]func(context.Context, *kadm.Client, *adminFlags) (any, error){
	"create-topic":     createTopic,
	"delete-topic":     deleteTopic,
	"describe-topic":   describeTopic,
	"describe-configs": describeConfigs,
	"alter-configs":    alterConfigs,
	"list-offsets":     listOffsets,
	"group-offsets":    groupOffsets,
	"delete-group":     deleteGroup,
	"brokers":          brokers,
}

func administer(ctx context.Context, arguments []string, out *printer) error {
	f, flags := &adminFlags{}, flag.NewFlagSet("admin", flag.ContinueOnError)
	f.connection = connectionFlags(flags)
	names := make([]string, 0, len(operations))
	for name := range operations {
		names = append(names, name)
	}
	flags.StringVar(&f.operation, "operation", "", "one of "+strings.Join(names, ", "))
	flags.StringVar(&f.topic, "topic", "", "topic")
	flags.StringVar(&f.group, "group", "", "group")
	flags.StringVar(&f.configs, "configs", "{}", "topic configs as a JSON object of strings; null deletes one")
	flags.IntVar(&f.partitions, "partitions", 1, "of the topic to create")
	flags.IntVar(&f.replicas, "replicas", -1, "of the topic to create")
	flags.Int64Var(&f.timestamp, "timestamp", 0, "list-offsets: of the first record since then (ms); -1 latest, -2 earliest, -3 maximum timestamp")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	run, known := operations[f.operation]
	if !known {
		return fmt.Errorf("-operation %q is not known", f.operation)
	}
	client, err := f.connection.newClient(kgo.MetadataMinAge(100 * time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	limited, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	result, err := run(limited, kadm.NewClient(client), f)
	if err != nil {
		out.fail(newErrorEvent(f.topic, -1, err))
		return nil
	}
	out.print(resultEvent{"result", result})
	return nil
}

func parseConfigs(text string) (map[string]*string, error) {
	configs := map[string]*string{}
	return configs, json.Unmarshal([]byte(text), &configs)
}

func createTopic(ctx context.Context, client *kadm.Client, f *adminFlags) (any, error) {
	configs, err := parseConfigs(f.configs)
	if err != nil {
		return nil, err
	}
	created, err := client.CreateTopic(ctx, int32(f.partitions), int16(f.replicas), configs, f.topic)
	return map[string]any{"partitions": created.NumPartitions, "replicas": created.ReplicationFactor}, err
}

func deleteTopic(ctx context.Context, client *kadm.Client, f *adminFlags) (any, error) {
	_, err := client.DeleteTopic(ctx, f.topic)
	return map[string]any{}, err
}

func describeTopic(ctx context.Context, client *kadm.Client, f *adminFlags) (any, error) {
	found, err := client.ListTopics(ctx, f.topic)
	if err != nil {
		return nil, err
	}
	topic := found[f.topic]
	if topic.Err != nil {
		return nil, topic.Err
	}
	partitions := []partitionResult{}
	for _, one := range topic.Partitions.Sorted() {
		partitions = append(partitions, partitionResult{one.Partition, one.Leader, one.Replicas})
	}
	return map[string]any{"partitions": partitions, "internal": topic.IsInternal}, nil
}

func describeConfigs(ctx context.Context, client *kadm.Client, f *adminFlags) (any, error) {
	found, err := client.DescribeTopicConfigs(ctx, f.topic)
	if err != nil {
		return nil, err
	}
	one, err := found.On(f.topic, nil)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, config := range one.Configs {
		values[config.Key] = config.MaybeValue()
	}
	return values, one.Err
}

func alterConfigs(ctx context.Context, client *kadm.Client, f *adminFlags) (any, error) {
	configs, err := parseConfigs(f.configs)
	if err != nil {
		return nil, err
	}
	var changes []kadm.AlterConfig
	for name, value := range configs {
		if value == nil {
			changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
		} else {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
		}
	}
	answered, err := client.AlterTopicConfigs(ctx, changes, f.topic)
	if err != nil {
		return nil, err
	}
	for _, one := range answered {
		if one.Err != nil {
			return nil, one.Err
		}
	}
	return map[string]any{}, nil
}

func listOffsets(ctx context.Context, client *kadm.Client, f *adminFlags) (any, error) {
	var found kadm.ListedOffsets
	var err error
	switch f.timestamp {
	case -1:
		found, err = client.ListEndOffsets(ctx, f.topic)
	case -2:
		found, err = client.ListStartOffsets(ctx, f.topic)
	case -3:
		found, err = client.ListMaxTimestampOffsets(ctx, f.topic)
	default:
		found, err = client.ListOffsetsAfterMilli(ctx, f.timestamp, f.topic)
	}
	if err != nil {
		return nil, err
	}
	offsets := map[int32][2]int64{}
	for partition, one := range found[f.topic] {
		if one.Err != nil {
			return nil, one.Err
		}
		offsets[partition] = [2]int64{one.Offset, one.Timestamp}
	}
	return offsets, nil
}

// groupOffsets are the committed offsets of a group on the topic.
func groupOffsets(ctx context.Context, client *kadm.Client, f *adminFlags) (any, error) {
	found, err := client.FetchOffsets(ctx, f.group)
	if err != nil {
		return nil, err
	}
	committed := map[int32]int64{}
	for partition, one := range found[f.topic] {
		if one.Err != nil {
			return nil, one.Err
		}
		committed[partition] = one.At
	}
	return committed, nil
}

func deleteGroup(ctx context.Context, client *kadm.Client, f *adminFlags) (any, error) {
	_, err := client.DeleteGroup(ctx, f.group)
	return map[string]any{}, err
}

func brokers(ctx context.Context, client *kadm.Client, _ *adminFlags) (any, error) {
	found, err := client.BrokerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	addresses := map[int32]string{}
	for _, one := range found.Brokers {
		addresses[one.NodeID] = fmt.Sprintf("%s:%d", one.Host, one.Port)
	}
	return addresses, nil
}
