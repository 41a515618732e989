// sarama: the calls of its administrator.

package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

func saramaAdminSteps() []step {
	return []step{
		{"sarama: topics, their configuration and partitions", saramaTopics},
		{"sarama: delete records", saramaDeleteRecords},
		{"sarama: groups: list, describe, offsets, delete", saramaGroups},
		{"sarama: the cluster, its directories, its quotas", saramaCluster},
	}
}

func saramaAdmin(t *trial) (sarama.ClusterAdmin, error) {
	return sarama.NewClusterAdmin([]string{t.bootstrap}, saramaConfig())
}

func saramaTopics(t *trial) error {
	topic, err := saramaTopic(t, 2)
	if err != nil {
		return err
	}
	admin, err := saramaAdmin(t)
	if err != nil {
		return err
	}
	defer admin.Close()
	err = admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false)
	if !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return fmt.Errorf("created twice: %v", err)
	}
	resource, value := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic}, "3600000"
	err = admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
	}, false)
	if err != nil {
		return err
	}
	err = eventually(t, func() error {
		entries, err := admin.DescribeConfig(resource)
		at := slices.IndexFunc(entries, func(entry sarama.ConfigEntry) bool { return entry.Name == "retention.ms" })
		if err != nil || at < 0 {
			return fmt.Errorf("retention.ms is not told: %w", err)
		}
		return want("retention.ms", entries[at].Value, value)
	})
	if err := firstOf(err, admin.CreatePartitions(topic, 4, nil, false)); err != nil {
		return err
	}
	err = eventually(t, func() error {
		described, err := admin.DescribeTopics([]string{topic})
		return firstOf(err, want("partitions", len(described[0].Partitions), 4))
	})
	if err := firstOf(err, admin.DeleteTopic(topic)); err != nil {
		return err
	}
	if err := admin.DeleteTopic(topic); !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return fmt.Errorf("deleted twice: %v", err)
	}
	return nil
}

func saramaDeleteRecords(t *trial) error {
	topic, err := saramaTopic(t, 1)
	if err != nil {
		return err
	}
	config := saramaConfig()
	config.Producer.RequiredAcks = sarama.WaitForLocal // what was acknowledged so can be deleted at once, too
	if err := saramaWrite(t, topic, sample(), config); err != nil {
		return err
	}
	admin, err := saramaAdmin(t)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.DeleteRecords(topic, map[int32]int64{0: sampleSize}); err != nil {
		return err
	}
	listed, err := admin.ListOffsets(map[string]map[int32]int64{topic: {0: sarama.OffsetOldest}}, nil)
	if err != nil {
		return err
	}
	return want("start", listed[topic][0].Offset, sampleSize)
}

func saramaGroups(t *trial) error {
	topic, err := saramaTopic(t, 2)
	if err != nil {
		return err
	}
	admin, err := saramaAdmin(t)
	if err != nil {
		return err
	}
	defer admin.Close()
	own, counts, group := &owners{}, &tally{}, t.named("g")
	leave, err := saramaJoin(t, &saramaMember{"one", topic, own, counts}, sarama.NewBalanceStrategyRange())
	if err != nil {
		return err
	}
	if err := own.await(t, map[string]int{"one": 2}); err != nil {
		return err
	}
	described, err := admin.DescribeConsumerGroups([]string{group})
	err = firstOf(err, want("state", described[0].State, "Stable"), want("members", len(described[0].Members), 1))
	if err != nil {
		return err
	}
	if err := admin.DeleteConsumerGroup(group); !errors.Is(err, sarama.ErrNonEmptyGroup) {
		return fmt.Errorf("a group with members was deleted: %v", err)
	}
	if err := leave(); err != nil {
		return err
	}
	client, err := sarama.NewClient([]string{t.bootstrap}, saramaConfig())
	if err != nil {
		return err
	}
	defer client.Close()
	manager, err := sarama.NewOffsetManagerFromClient(group, client)
	if err != nil {
		return err
	}
	partition, err := manager.ManagePartition(topic, 1)
	if err != nil {
		return err
	}
	partition.MarkOffset(7, "by hand")
	manager.Commit()
	if err := firstOf(partition.Close(), manager.Close()); err != nil {
		return err
	}
	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {1}})
	if err != nil {
		return err
	}
	block := offsets.GetBlock(topic, 1)
	listed, err := admin.ListConsumerGroups()
	return firstOf(err, want("committed", block.Offset, 7), want("metadata", block.Metadata, "by hand"),
		want("type of the listed group", listed[group], "consumer"),
		admin.DeleteConsumerGroupOffset(group, topic, 1), admin.DeleteConsumerGroup(group))
}

func saramaCluster(t *trial) error {
	admin, err := saramaAdmin(t)
	if err != nil {
		return err
	}
	defer admin.Close()
	brokers, controller, err := admin.DescribeCluster()
	if err := firstOf(err, want("brokers", len(brokers), 1), want("controller", controller, brokers[0].ID())); err != nil {
		return err
	}
	directories, err := admin.DescribeLogDirs([]int32{brokers[0].ID()})
	if err := firstOf(err, want("brokers with directories", len(directories), 1)); err != nil {
		return err
	}
	name := t.named("c")
	entity := []sarama.QuotaEntityComponent{{
		EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Name: name,
	}}
	rate := sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 1024}
	if err := admin.AlterClientQuotas(entity, rate, false); err != nil {
		return err
	}
	filter := []sarama.QuotaFilterComponent{{
		EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Match: name,
	}}
	err = eventually(t, func() error {
		quotas, err := admin.DescribeClientQuotas(filter, false)
		if err := firstOf(err, want("quotas", len(quotas), 1)); err != nil {
			return err
		}
		return want("rate", quotas[0].Values["producer_byte_rate"], 1024)
	})
	rate.Remove = true
	return firstOf(err, admin.AlterClientQuotas(entity, rate, false))
}
