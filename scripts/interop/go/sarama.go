// sarama: records of every codec, groups by each of its assignors, offsets by time.

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

func saramaSteps() []step {
	var steps []step
	for _, codec := range codecs {
		for _, idempotent := range []bool{false, true} {
			name := "sarama: write and read, " + codec
			if idempotent {
				name += ", idempotent"
			}
			steps = append(steps, step{name, func(t *trial) error { return saramaCodec(t, codec, idempotent) }})
		}
	}
	groups := map[string]sarama.BalanceStrategy{
		"range":      sarama.NewBalanceStrategyRange(),
		"roundrobin": sarama.NewBalanceStrategyRoundRobin(),
		"sticky":     sarama.NewBalanceStrategySticky(),
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		steps = append(steps, step{"sarama: a group of two, " + name, func(t *trial) error {
			return saramaGroup(t, groups[name])
		}})
	}
	return append(steps, step{"sarama: offsets by time", saramaTimes})
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}

func saramaTopic(t *trial, partitions int32) (string, error) {
	admin, err := sarama.NewClusterAdmin([]string{t.bootstrap}, saramaConfig())
	if err != nil {
		return "", err
	}
	defer admin.Close()
	topic := t.named("t")
	return topic, admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
}

func saramaWrite(t *trial, topic string, records []record, config *sarama.Config) error {
	producer, err := sarama.NewSyncProducer([]string{t.bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, len(records))
	for i, one := range records {
		message := &sarama.ProducerMessage{Topic: topic, Timestamp: time.UnixMilli(one.ms)}
		if one.key != nil {
			message.Key = sarama.ByteEncoder(one.key)
		}
		if one.value != nil {
			message.Value = sarama.ByteEncoder(one.value)
		}
		for _, h := range one.headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(h.key), Value: h.value})
		}
		messages[i] = message
	}
	return producer.SendMessages(messages)
}

func saramaCodec(t *trial, codec string, idempotent bool) error {
	topic, err := saramaTopic(t, 1)
	if err != nil {
		return err
	}
	config := saramaConfig()
	if err := config.Producer.Compression.UnmarshalText([]byte(codec)); err != nil {
		return err
	}
	if idempotent {
		config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
	}
	wrote := sample()
	if err := saramaWrite(t, topic, wrote, config); err != nil {
		return err
	}
	consumer, err := sarama.NewConsumer([]string{t.bootstrap}, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	reader, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer reader.Close()
	var read []record
	for len(read) < len(wrote) {
		select {
		case message := <-reader.Messages():
			one := record{key: message.Key, value: message.Value, ms: message.Timestamp.UnixMilli()}
			for _, h := range message.Headers {
				one.headers = append(one.headers, header{string(h.Key), h.Value})
			}
			read = append(read, one)
		case err := <-reader.Errors():
			return err
		case <-t.Done():
			return fmt.Errorf("%d of %d records were read", len(read), len(wrote))
		}
	}
	return firstOf(same(wrote, read, false), want("high watermark", reader.HighWaterMarkOffset(), sampleSize))
}

func saramaTimes(t *trial) error {
	topic, err := saramaTopic(t, 1)
	if err != nil {
		return err
	}
	if err := saramaWrite(t, topic, sample(), saramaConfig()); err != nil {
		return err
	}
	client, err := sarama.NewClient([]string{t.bootstrap}, saramaConfig())
	if err != nil {
		return err
	}
	defer client.Close()
	for _, asked := range []struct{ ms, offset int64 }{
		{sarama.OffsetOldest, 0}, {sarama.OffsetNewest, sampleSize}, {firstMs - 1, 0}, {firstMs + 100_001, 101},
		{firstMs + 1000*sampleSize, -1},
	} {
		offset, err := client.GetOffset(topic, 0, asked.ms)
		if err := firstOf(err, want(fmt.Sprint("offset at ", asked.ms), offset, asked.offset)); err != nil {
			return err
		}
	}
	return nil
}

// saramaMember is called by sarama when a member of a group gets partitions, and has to give them up.
type saramaMember struct {
	name, topic string
	own         *owners
	counts      *tally
}

func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.own.set(m.name, session.Claims()[m.topic])
	return nil
}

func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	m.own.set(m.name, nil)
	return nil
}

func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			m.counts.read(message.Value)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func saramaJoin(t *trial, member *saramaMember, strategy sarama.BalanceStrategy) (leave func() error, err error) {
	config := saramaConfig()
	config.ClientID = member.name
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 10 * time.Second
	group, err := sarama.NewConsumerGroup([]string{t.bootstrap}, t.named("g"), config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(t)
	ended := make(chan error, 1)
	go func() {
		var err error
		for ctx.Err() == nil && err == nil {
			err = group.Consume(ctx, []string{member.topic}, member)
		}
		ended <- err
	}()
	return func() error {
		cancel()
		return firstOf(<-ended, group.Close())
	}, nil
}

func saramaGroup(t *trial, strategy sarama.BalanceStrategy) error {
	topic, err := saramaTopic(t, 6)
	if err != nil {
		return err
	}
	config := saramaConfig()
	config.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	write := func(first, end int) error {
		var records []record
		for i := first; i < end; i++ {
			records = append(records, record{value: []byte(strconv.Itoa(i)), ms: firstMs})
		}
		return saramaWrite(t, topic, records, config)
	}
	own, counts := &owners{}, &tally{}
	leaveOne, err := saramaJoin(t, &saramaMember{"one", topic, own, counts}, strategy)
	if err != nil {
		return err
	}
	err = firstOf(own.await(t, map[string]int{"one": 6}), write(0, 300), counts.awaitEachOnce(t, 300))
	if err != nil {
		return err
	}
	leaveTwo, err := saramaJoin(t, &saramaMember{"two", topic, own, counts}, strategy)
	if err != nil {
		return err
	}
	err = firstOf(own.await(t, map[string]int{"one": 3, "two": 3}), write(300, 600), counts.awaitEachOnce(t, 600))
	if err != nil {
		return err
	}
	err = firstOf(leaveTwo(), own.await(t, map[string]int{"one": 6}), write(600, 900), counts.awaitEachOnce(t, 900))
	return firstOf(err, leaveOne())
}
