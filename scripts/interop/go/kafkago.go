// kafka-go (segmentio): records of every codec, groups, offsets by time, and the calls of its client about topics and groups.

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

func kafkaGoSteps() []step {
	var steps []step
	for _, codec := range codecs {
		steps = append(steps, step{"kafka-go: write and read, " + codec, func(t *trial) error {
			return kafkaGoCodec(t, codec)
		}})
	}
	groups := map[string]kafka.GroupBalancer{
		"range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{},
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		steps = append(steps, step{"kafka-go: a group of two, " + name, func(t *trial) error {
			return kafkaGoGroup(t, groups[name])
		}})
	}
	return append(steps,
		step{"kafka-go: offsets by time", kafkaGoTimes},
		step{"kafka-go: topics and groups, made and deleted", kafkaGoAdmin},
	)
}

func kafkaGoClient(t *trial) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(t.bootstrap), Timeout: 30 * time.Second}
}

func kafkaGoTopic(t *trial, partitions int) (string, error) {
	topic := t.named("t")
	made, err := kafkaGoClient(t).CreateTopics(t, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}},
	})
	if err != nil {
		return topic, err
	}
	return topic, made.Errors[topic]
}

func kafkaGoWrite(t *trial, topic string, records []record, compression kafka.Compression) error {
	writer := &kafka.Writer{
		Addr: kafka.TCP(t.bootstrap), Topic: topic, RequiredAcks: kafka.RequireAll, Compression: compression,
		BatchTimeout: 5 * time.Millisecond, Balancer: &kafka.RoundRobin{},
	}
	messages := make([]kafka.Message, len(records))
	for i, one := range records {
		messages[i] = kafka.Message{Key: one.key, Value: one.value, Time: time.UnixMilli(one.ms)}
		for _, h := range one.headers {
			messages[i].Headers = append(messages[i].Headers, kafka.Header{Key: h.key, Value: h.value})
		}
	}
	return errors.Join(writer.WriteMessages(t, messages...), writer.Close())
}

func kafkaGoRead(t *trial, reader *kafka.Reader, count int) ([]record, error) {
	var read []record
	for len(read) < count {
		message, err := reader.ReadMessage(t)
		if err != nil {
			return read, fmt.Errorf("after %d records: %w", len(read), err)
		}
		one := record{key: message.Key, value: message.Value, ms: message.Time.UnixMilli()}
		for _, h := range message.Headers {
			one.headers = append(one.headers, header{h.Key, h.Value})
		}
		read = append(read, one)
	}
	return read, nil
}

func kafkaGoReader(t *trial, topic string) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{t.bootstrap}, Topic: topic, MinBytes: 1, MaxBytes: 10 << 20, MaxWait: 200 * time.Millisecond,
	})
}

func kafkaGoCodec(t *trial, codec string) error {
	topic, err := kafkaGoTopic(t, 1)
	if err != nil {
		return err
	}
	compressions := map[string]kafka.Compression{
		"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	}
	wrote := sample()
	if err := kafkaGoWrite(t, topic, wrote, compressions[codec]); err != nil {
		return err
	}
	reader := kafkaGoReader(t, topic)
	defer reader.Close()
	read, err := kafkaGoRead(t, reader, len(wrote))
	return firstOf(err, same(wrote, read, true))
}

func kafkaGoTimes(t *trial) error {
	topic, err := kafkaGoTopic(t, 1)
	if err != nil {
		return err
	}
	if err := kafkaGoWrite(t, topic, sample(), 0); err != nil {
		return err
	}
	reader := kafkaGoReader(t, topic)
	defer reader.Close()
	if err := reader.SetOffsetAt(t, time.UnixMilli(firstMs+100_001)); err != nil {
		return err
	}
	if err := want("offset at a time", reader.Offset(), 101); err != nil {
		return err
	}
	read, err := kafkaGoRead(t, reader, sampleSize-101)
	if err := firstOf(err, same(sample()[101:], read, true)); err != nil {
		return err
	}
	answer, err := kafkaGoClient(t).ListOffsets(t, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0)}},
	})
	if err != nil {
		return err
	}
	offsets := answer.Topics[topic][0]
	return firstOf(want("first", offsets.FirstOffset, 0), want("last", offsets.LastOffset, sampleSize))
}

// kafkaGoJoin joins a group, notes the partitions of each generation and reads them until `leave` is called.
func kafkaGoJoin(
	t *trial, name, topic string, balancer kafka.GroupBalancer, own *owners, counts *tally,
) (leave func() error, err error) {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: t.named("g"), Brokers: []string{t.bootstrap}, Topics: []string{topic},
		GroupBalancers: []kafka.GroupBalancer{balancer}, HeartbeatInterval: 200 * time.Millisecond,
		RebalanceTimeout: 10 * time.Second, JoinGroupBackoff: 100 * time.Millisecond, StartOffset: kafka.FirstOffset,
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			generation, err := group.Next(t)
			if err != nil {
				return
			}
			var partitions []int32
			for _, given := range generation.Assignments[topic] {
				partitions = append(partitions, int32(given.ID))
				generation.Start(func(ctx context.Context) {
					kafkaGoFollow(ctx, t, topic, generation, given, counts)
				})
			}
			own.set(name, partitions)
			generation.Start(func(ctx context.Context) {
				<-ctx.Done()
				own.set(name, nil)
			})
		}
	}()
	var once sync.Once
	return func() (err error) {
		once.Do(func() { err = group.Close() })
		return err
	}, nil
}

// kafkaGoFollow reads one partition while its generation lasts, and commits what was read.
func kafkaGoFollow(
	ctx context.Context, t *trial, topic string, generation *kafka.Generation, given kafka.PartitionAssignment,
	counts *tally,
) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{t.bootstrap}, Topic: topic, Partition: given.ID, MaxWait: 200 * time.Millisecond,
		MinBytes: 1, MaxBytes: 1 << 20,
	})
	defer reader.Close()
	if reader.SetOffset(given.Offset) != nil {
		return
	}
	for {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return
		}
		counts.read(message.Value)
		if generation.CommitOffsets(map[string]map[int]int64{topic: {given.ID: message.Offset + 1}}) != nil {
			return
		}
	}
}

func kafkaGoGroup(t *trial, balancer kafka.GroupBalancer) error {
	topic, err := kafkaGoTopic(t, 6)
	if err != nil {
		return err
	}
	write := func(first, end int) error {
		var records []record
		for i := first; i < end; i++ {
			records = append(records, record{value: []byte(strconv.Itoa(i)), ms: firstMs})
		}
		return kafkaGoWrite(t, topic, records, 0)
	}
	own, counts := &owners{}, &tally{}
	leaveOne, err := kafkaGoJoin(t, "one", topic, balancer, own, counts)
	if err != nil {
		return err
	}
	defer leaveOne()
	err = firstOf(own.await(t, map[string]int{"one": 6}), write(0, 60), counts.awaitEachOnce(t, 60))
	if err != nil {
		return err
	}
	leaveTwo, err := kafkaGoJoin(t, "two", topic, balancer, own, counts)
	if err != nil {
		return err
	}
	defer leaveTwo()
	err = firstOf(own.await(t, map[string]int{"one": 3, "two": 3}), write(60, 120), counts.awaitEachOnce(t, 120))
	if err != nil {
		return err
	}
	return firstOf(leaveTwo(), own.await(t, map[string]int{"one": 6}), write(120, 180), counts.awaitEachOnce(t, 180))
}

func kafkaGoAdmin(t *trial) error {
	topic, err := kafkaGoTopic(t, 2)
	if err != nil {
		return err
	}
	if _, err := kafkaGoTopic(t, 2); !errors.Is(err, kafka.TopicAlreadyExists) {
		return fmt.Errorf("created twice: %v", err)
	}
	client, group := kafkaGoClient(t), t.named("g")
	_, err = client.IncrementalAlterConfigs(t, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{
				{Name: "retention.ms", Value: "3600000", ConfigOperation: kafka.ConfigOperationSet},
			},
		}},
	})
	if err != nil {
		return err
	}
	err = eventually(t, func() error {
		described, err := client.DescribeConfigs(t, &kafka.DescribeConfigsRequest{
			Resources: []kafka.DescribeConfigRequestResource{{
				ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"},
			}},
		})
		if err != nil {
			return err
		}
		return want("retention.ms", described.Resources[0].ConfigEntries[0].ConfigValue, "3600000")
	})
	if err != nil {
		return err
	}
	_, err = client.OffsetCommit(t, &kafka.OffsetCommitRequest{
		GroupID: group, GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{topic: {{Partition: 1, Offset: 7, Metadata: "by hand"}}},
	})
	if err != nil {
		return err
	}
	fetched, err := client.OffsetFetch(t, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {1}}})
	if err := firstOf(err, want("committed", fetched.Topics[topic][0].CommittedOffset, 7)); err != nil {
		return err
	}
	gone, err := client.DeleteGroups(t, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
	if err := firstOf(err, gone.Errors[group]); err != nil {
		return err
	}
	deleted, err := client.DeleteTopics(t, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err := firstOf(err, deleted.Errors[topic]); err != nil {
		return err
	}
	deleted, err = client.DeleteTopics(t, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil || !errors.Is(deleted.Errors[topic], kafka.UnknownTopicOrPartition) {
		return fmt.Errorf("deleted twice: %v, %v", err, deleted)
	}
	return nil
}
