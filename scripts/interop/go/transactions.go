// Transactions of franz-go and sarama: commit, abort, both isolation levels, fencing, consume-transform-produce, administration.

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const moved = 2000

func transactionSteps() []step {
	return []step{
		{"franz-go: transactions, committed and aborted", franzTransactions},
		{"franz-go: transactions, a fenced producer", franzFenced},
		{"franz-go: transactions, two sessions of a group move records exactly once", franzSessions},
		{"franz-go: transactions, described and ended by an administrator", franzTransactionAdmin},
		{"sarama: transactions, committed and aborted", saramaTransactions},
		{"sarama: transactions, offsets and records move together", saramaOffsets},
		{"sarama: transactions, a fenced producer", saramaFenced},
	}
}

// --- franz-go

func franzTransactions(t *trial) error {
	client, topic, err := franzTopic(t, 3, kgo.TransactionalID(t.named("id")), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer client.Close()
	var committed, every []string
	for round := range 6 {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		var records []*kgo.Record
		for number := range 30 {
			value := fmt.Sprintf("%d-%d", round, number)
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(number % 3), Value: []byte(value)})
			every = append(every, value)
			if round%2 == 0 {
				committed = append(committed, value)
			}
		}
		if err := client.ProduceSync(t, records...).FirstErr(); err != nil {
			return err
		}
		if err := client.EndTransaction(t, kgo.TransactionEndTry(round%2 == 0)); err != nil {
			return err
		}
	}
	if err := franzReads(t, topic, kgo.ReadCommitted(), committed); err != nil {
		return err
	}
	return franzReads(t, topic, kgo.ReadUncommitted(), every)
}

// franzReads awaits exactly these values: a plain record after them in each partition shows that all were read.
func franzReads(t *trial, topic string, level kgo.IsolationLevel, wanted []string) error {
	client, err := franzClient(t, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(level), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	details, err := kadm.NewClient(client).ListTopics(t, topic)
	if err != nil {
		return err
	}
	count := len(details[topic].Partitions)
	end := t.named(fmt.Sprintf("end-%d", time.Now().UnixNano()))
	for partition := range count {
		last := &kgo.Record{Topic: topic, Partition: int32(partition), Value: []byte(end)}
		if err := client.ProduceSync(t, last).FirstErr(); err != nil {
			return err
		}
	}
	var seen []string
	for ends := 0; ends < count; {
		fetches := client.PollFetches(t)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("%d of %d values: %w", len(seen), len(wanted), err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			switch value := string(record.Value); {
			case value == end:
				ends++
			case len(value) < len(t.prefix) || value[:len(t.prefix)] != t.prefix: // an earlier reader's end
				seen = append(seen, value)
			}
		})
	}
	return sameValues(seen, wanted)
}

func sameValues(seen, wanted []string) error {
	seen, wanted = slices.Clone(seen), slices.Clone(wanted)
	slices.Sort(seen)
	slices.Sort(wanted)
	if !slices.Equal(seen, wanted) {
		return fmt.Errorf("%d values were read, %d of them different; they should be %d", len(seen), len(slices.Compact(seen)), len(wanted))
	}
	return nil
}

func franzFenced(t *trial) error {
	first, topic, err := franzTopic(t, 1, kgo.TransactionalID(t.named("id")))
	if err != nil {
		return err
	}
	defer first.Close()
	second, err := franzClient(t, kgo.TransactionalID(t.named("id")), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer second.Close()
	for _, client := range []*kgo.Client{first, second} {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		if err := client.ProduceSync(t, &kgo.Record{Topic: topic, Value: []byte("kept")}).FirstErr(); err != nil {
			return err
		}
	}
	err = first.EndTransaction(t, kgo.TryCommit)
	if !errors.Is(err, kerr.InvalidProducerEpoch) && !errors.Is(err, kerr.ProducerFenced) {
		return fmt.Errorf("the first producer's commit: %v", err)
	}
	if err := second.EndTransaction(t, kgo.TryCommit); err != nil {
		return err
	}
	return franzReads(t, topic, kgo.ReadCommitted(), []string{"kept"})
}

// franzSessions moves records with two members; each aborts every third of its transactions.
func franzSessions(t *trial) error {
	client, input, err := franzTopic(t, 4)
	if err != nil {
		return err
	}
	defer client.Close()
	output := t.named("output")
	if _, err := kadm.NewClient(client).CreateTopic(t, 4, 1, nil, output); err != nil {
		return err
	}
	var wanted []string
	for number := range moved {
		value := strconv.Itoa(number)
		wanted = append(wanted, value)
		client.Produce(t, &kgo.Record{Topic: input, Key: []byte(value), Value: []byte(value)}, nil)
	}
	if err := client.Flush(t); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(t)
	defer stop()
	var group sync.WaitGroup
	failures := make(chan error, 2)
	for member := range 2 {
		group.Go(func() { failures <- franzMover(ctx, t, member, input, output) })
	}
	err = franzAwaits(t, output, moved)
	stop()
	group.Wait()
	close(failures)
	for failure := range failures {
		err = errors.Join(err, failure)
	}
	if err != nil {
		return err
	}
	return franzReads(t, output, kgo.ReadCommitted(), wanted)
}

func franzMover(ctx context.Context, t *trial, member int, input, output string) error {
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(t.bootstrap), kgo.TransactionalID(t.named(fmt.Sprintf("id-%d", member))),
		kgo.ConsumeTopics(input), kgo.ConsumerGroup(t.named("g")), kgo.DefaultProduceTopic(output), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer session.Close()
	for round := 0; ctx.Err() == nil; round++ {
		polled := session.PollRecords(ctx, 50)
		if polled.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		polled.EachRecord(func(record *kgo.Record) {
			session.Produce(t, &kgo.Record{Key: record.Key, Value: record.Value}, nil)
		})
		if _, err := session.End(t, kgo.TransactionEndTry(round%3 != 2)); err != nil {
			return err
		}
	}
	return nil
}

// franzAwaits waits until this number of committed records can be read.
func franzAwaits(t *trial, topic string, count int) error {
	client, err := franzClient(t, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	for seen := 0; seen < count; {
		fetches := client.PollFetches(t)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("%d of %d records came: %w", seen, count, err)
		}
		seen += fetches.NumRecords()
	}
	return nil
}

func franzTransactionAdmin(t *trial) error {
	client, topic, err := franzTopic(t, 1, kgo.TransactionalID(t.named("id")))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := client.ProduceSync(t, &kgo.Record{Topic: topic, Value: []byte("hangs")}).FirstErr(); err != nil {
		return err
	}
	listed, err := admin.ListTransactions(t, nil, []string{"Ongoing"})
	if err != nil {
		return err
	}
	if _, is := listed[t.named("id")]; !is {
		return fmt.Errorf("it is not among those that are open: %v", listed.TransactionalIDs())
	}
	described, err := admin.DescribeTransactions(t, t.named("id"))
	if err != nil {
		return err
	}
	one := described[t.named("id")]
	if one.State != "Ongoing" || !one.Topics.Lookup(topic, 0) {
		return fmt.Errorf("it is described as %+v", one)
	}
	producers, err := admin.DescribeProducers(t, kadm.TopicsSet{topic: {0: {}}})
	if err != nil {
		return err
	}
	active := producers[topic].Partitions[0].ActiveProducers.Sorted()
	if len(active) != 1 || active[0].ProducerID != one.ProducerID || active[0].CurrentTxnStartOffset != 0 {
		return fmt.Errorf("the producers of the partition: %+v", active)
	}
	marker := kadm.TxnMarkers{ProducerID: one.ProducerID, ProducerEpoch: one.ProducerEpoch, Commit: false,
		CoordinatorEpoch: active[0].CoordinatorEpoch, Topics: kadm.TopicsSet{topic: {0: {}}}}
	if _, err := admin.WriteTxnMarkers(t, marker); err != nil {
		return err
	}
	return franzReads(t, topic, kgo.ReadCommitted(), nil)
}

// --- sarama

func saramaTransactional(t *trial) *sarama.Config {
	config := saramaConfig()
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = t.named("id")
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Net.MaxOpenRequests = 1
	return config
}

func saramaTransactions(t *trial) error {
	topic, err := saramaTopic(t, 3)
	if err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducer([]string{t.bootstrap}, saramaTransactional(t))
	if err != nil {
		return err
	}
	defer producer.Close()
	var committed, every []string
	for round := range 6 {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		for number := range 9 {
			value := fmt.Sprintf("%d-%d", round, number)
			message := &sarama.ProducerMessage{Topic: topic, Partition: int32(number % 3), Value: sarama.StringEncoder(value)}
			if _, _, err := producer.SendMessage(message); err != nil {
				return err
			}
			every = append(every, value)
		}
		if round%2 == 0 {
			committed = append(committed, every[len(every)-9:]...)
			err = producer.CommitTxn()
		} else {
			err = producer.AbortTxn()
		}
		if err != nil {
			return err
		}
	}
	seen, err := saramaReads(t, topic, 3, sarama.ReadCommitted)
	if err == nil {
		err = sameValues(seen, committed)
	}
	if err != nil {
		return err
	}
	if seen, err = saramaReads(t, topic, 3, sarama.ReadUncommitted); err != nil {
		return err
	}
	return sameValues(seen, every)
}

// saramaReads returns the values before a plain record that is written after them in each partition.
func saramaReads(t *trial, topic string, partitions int32, level sarama.IsolationLevel) ([]string, error) {
	config := saramaConfig()
	config.Consumer.IsolationLevel = level
	config.Producer.Partitioner = sarama.NewManualPartitioner
	consumer, err := sarama.NewConsumer([]string{t.bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	plain, err := sarama.NewSyncProducer([]string{t.bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	var seen []string
	for partition := range partitions {
		_, last, err := plain.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.StringEncoder("end")})
		if err != nil {
			return nil, err
		}
		reader, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		for is := true; is; {
			select {
			case message := <-reader.Messages():
				if string(message.Value) != "end" { // an earlier reader's, or this one's
					seen = append(seen, string(message.Value))
				}
				is = message.Offset < last
			case err := <-reader.Errors():
				return nil, err
			case <-t.Done():
				return nil, fmt.Errorf("%d values came", len(seen))
			}
		}
		reader.Close()
	}
	return seen, nil
}

func saramaOffsets(t *trial) error {
	topic, err := saramaTopic(t, 1)
	if err != nil {
		return err
	}
	config := saramaTransactional(t)
	client, err := sarama.NewClient([]string{t.bootstrap}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	defer producer.Close()
	admin, err := sarama.NewClusterAdmin([]string{t.bootstrap}, saramaConfig())
	if err != nil {
		return err
	}
	defer admin.Close()
	for round := range 4 {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(strconv.Itoa(round))}); err != nil {
			return err
		}
		offset := map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: 0, Offset: int64(round)}}}
		if err := producer.AddOffsetsToTxn(offset, t.named("g")); err != nil {
			return err
		}
		if round%2 == 0 {
			err = producer.CommitTxn()
		} else {
			err = producer.AbortTxn()
		}
		if err != nil {
			return err
		}
		wanted := int64(round / 2 * 2)
		if err := saramaAwaitsOffset(t, admin, topic, wanted); err != nil {
			return err
		}
	}
	seen, err := saramaReads(t, topic, 1, sarama.ReadCommitted)
	if err != nil {
		return err
	}
	return sameValues(seen, []string{"0", "2"})
}

func saramaAwaitsOffset(t *trial, admin sarama.ClusterAdmin, topic string, wanted int64) error {
	for {
		told, err := admin.ListConsumerGroupOffsets(t.named("g"), map[string][]int32{topic: {0}})
		if err != nil {
			return err
		}
		found := told.GetBlock(topic, 0).Offset
		if found == wanted {
			return nil
		}
		select {
		case <-t.Done():
			return fmt.Errorf("the committed offset is %d, not %d", found, wanted)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func saramaFenced(t *trial) error {
	topic, err := saramaTopic(t, 1)
	if err != nil {
		return err
	}
	var producers []sarama.SyncProducer
	for range 2 {
		producer, err := sarama.NewSyncProducer([]string{t.bootstrap}, saramaTransactional(t))
		if err != nil {
			return err
		}
		defer producer.Close()
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("kept")}); err != nil {
			return err
		}
		producers = append(producers, producer)
	}
	if err := producers[0].CommitTxn(); err == nil {
		return errors.New("the first producer is not fenced")
	}
	if err := producers[1].CommitTxn(); err != nil {
		return err
	}
	seen, err := saramaReads(t, topic, 1, sarama.ReadCommitted)
	if err != nil {
		return err
	}
	return sameValues(seen, []string{"kept"})
}
