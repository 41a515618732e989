// franz-go: the promises to an idempotent producer, and the calls of its administrator.

package main

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func franzAdminSteps() []step {
	return []step{
		{"franz-go: an idempotent batch that is sent again", franzIdempotence},
		{"franz-go: topics, their configuration and partitions", franzTopics},
		{"franz-go: delete records", franzDeleteRecords},
		{"franz-go: groups: list, describe, offsets, delete", franzGroups},
		{"franz-go: the cluster, its directories, its features", franzCluster},
	}
}

// sequenced returns the bytes of a batch of one record, as an idempotent producer makes it.
func sequenced(producerID int64, epoch int16, sequence int32) []byte {
	r := kmsg.Record{Value: []byte(strconv.Itoa(int(sequence)))}
	r.Length = int32(len(r.AppendTo(nil)) - 1)
	records := r.AppendTo(nil)
	batch := kmsg.RecordBatch{
		Magic: 2, PartitionLeaderEpoch: -1, FirstTimestamp: firstMs, MaxTimestamp: firstMs,
		ProducerID: producerID, ProducerEpoch: epoch, FirstSequence: sequence, NumRecords: 1, Records: records,
	}
	const beforeLength, beforeChecksum, behindChecksum = 12, 17, 21
	raw := batch.AppendTo(nil)
	batch.Length = int32(len(raw) - beforeLength)
	batch.CRC = int32(crc32.Checksum(raw[behindChecksum:], crc32.MakeTable(crc32.Castagnoli)))
	return batch.AppendTo(nil)
}

func franzIdempotence(t *trial) error {
	client, topic, err := franzTopic(t, 1)
	if err != nil {
		return err
	}
	defer client.Close()
	init := kmsg.NewPtrInitProducerIDRequest()
	init.ProducerID, init.ProducerEpoch = -1, -1
	given, err := init.RequestWith(t, client)
	if err := firstOf(err, kerr.ErrorForCode(given.ErrorCode)); err != nil {
		return err
	}
	described, err := kadm.NewClient(client).ListTopics(t, topic)
	if err != nil {
		return err
	}
	send := func(sequence int32) (int64, error) {
		request := kmsg.NewPtrProduceRequest()
		request.Acks, request.TimeoutMillis = -1, 10_000
		part := kmsg.NewProduceRequestTopicPartition()
		part.Records = sequenced(given.ProducerID, given.ProducerEpoch, sequence)
		named := kmsg.NewProduceRequestTopic()
		named.Topic, named.TopicID = topic, described[topic].ID
		named.Partitions = append(named.Partitions, part)
		request.Topics = append(request.Topics, named)
		response, err := request.RequestWith(t, client)
		if err != nil {
			return -1, err
		}
		answer := response.Topics[0].Partitions[0]
		return answer.BaseOffset, kerr.ErrorForCode(answer.ErrorCode)
	}
	err = eventually(t, func() error { // the topic is new: until its partition is there this is refused
		_, err := send(0)
		return err
	})
	if err != nil {
		return err
	}
	for i, sequence := range []int32{0, 1, 2, 1, 0, 3} {
		offset, err := send(sequence)
		which := fmt.Sprintf("offset of sequence %d, sent as number %d", sequence, i)
		err = firstOf(err, want(which, offset, int64(sequence)))
		if err != nil {
			return err
		}
	}
	if _, err := send(7); !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
		return fmt.Errorf("a gap in the sequences: %v", err)
	}
	ends, err := kadm.NewClient(client).ListEndOffsets(t, topic)
	end, _ := ends.Lookup(topic, 0)
	return firstOf(err, want("end of the log", end.Offset, 4))
}

func franzTopics(t *trial) error {
	client, topic, err := franzTopic(t, 3)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(t, 3, 1, nil, topic); !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("created twice: %v", err)
	}
	if _, err := admin.CreateTopic(t, 1, 1, nil, "not/a/name"); !errors.Is(err, kerr.InvalidTopicException) {
		return fmt.Errorf("an illegal name: %v", err)
	}
	const setting = "retention.ms"
	set := func(value string) (kadm.AlterConfigsResponses, error) {
		return admin.AlterTopicConfigs(t, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: setting, Value: &value}}, topic)
	}
	altered, err := set("3600000")
	if err := firstOf(err, altered[0].Err); err != nil {
		return err
	}
	altered, err = set("soon")
	if err != nil || !errors.Is(altered[0].Err, kerr.InvalidConfig) {
		return fmt.Errorf("a wrong value: %v, %v", err, altered)
	}
	err = eventually(t, func() error {
		configs, err := admin.DescribeTopicConfigs(t, topic)
		resource, missing := configs.On(topic, nil)
		told := ""
		for _, config := range resource.Configs {
			if config.Key == setting {
				told = config.MaybeValue() + " " + config.Source.String()
			}
		}
		return firstOf(err, missing, resource.Err, want("configuration", told, "3600000 DYNAMIC_TOPIC_CONFIG"))
	})
	if err != nil {
		return err
	}
	grown, err := admin.UpdatePartitions(t, 5, topic)
	if err := firstOf(err, grown.Error()); err != nil {
		return err
	}
	err = eventually(t, func() error {
		listed, err := admin.ListTopics(t, topic)
		return firstOf(err, want("partitions", len(listed[topic].Partitions), 5))
	})
	if err != nil {
		return err
	}
	gone, err := admin.DeleteTopics(t, topic)
	if err := firstOf(err, gone.Error()); err != nil {
		return err
	}
	gone, err = admin.DeleteTopics(t, topic)
	if err != nil || !errors.Is(gone[topic].Err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("deleted twice: %v, %v", err, gone)
	}
	return nil
}

func franzDeleteRecords(t *trial) error {
	client, topic, err := franzTopic(t, 1)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.ProduceSync(t, franzRecords(topic, sample())...).FirstErr(); err != nil {
		return err
	}
	admin := kadm.NewClient(client)
	remove := func(before int64) (kadm.DeleteRecordsResponse, error) {
		var offsets kadm.Offsets
		offsets.AddOffset(topic, 0, before, -1)
		answers, err := admin.DeleteRecords(t, offsets)
		answer, _ := answers.Lookup(topic, 0)
		return answer, err
	}
	answer, err := remove(120)
	if err := firstOf(err, answer.Err, want("low watermark", answer.LowWatermark, 120)); err != nil {
		return err
	}
	if answer, err = remove(10_000); err != nil || !errors.Is(answer.Err, kerr.OffsetOutOfRange) {
		return fmt.Errorf("beyond the end: %v, %v", err, answer.Err)
	}
	starts, err := admin.ListStartOffsets(t, topic)
	start, _ := starts.Lookup(topic, 0)
	if err := firstOf(err, want("start", start.Offset, 120)); err != nil {
		return err
	}
	reader, err := franzClient(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer reader.Close()
	read, err := franzRead(t, reader, sampleSize-120)
	return firstOf(err, same(sample()[120:], read, false))
}

func franzGroups(t *trial) error {
	client, topic, err := franzTopic(t, 2)
	if err != nil {
		return err
	}
	defer client.Close()
	admin, group := kadm.NewClient(client), t.named("g")
	own, counts := &owners{}, &tally{}
	member, err := franzMember(t, "one", topic, own, counts)
	if err != nil {
		return err
	}
	defer member.CloseAllowingRebalance()
	err = firstOf(own.await(t, map[string]int{"one": 2}),
		client.ProduceSync(t, franzRecords(topic, sample())...).FirstErr())
	if err != nil {
		return err
	}
	if gone, err := admin.DeleteGroups(t, group); err != nil || !errors.Is(gone[group].Err, kerr.NonEmptyGroup) {
		return fmt.Errorf("a group with members was deleted: %v, %v", err, gone)
	}
	described, err := admin.DescribeGroups(t, group)
	state := described[group]
	err = firstOf(err, state.Err, want("state", state.State, "Stable"), want("members", len(state.Members), 1),
		want("client id", state.Members[0].ClientID, "one"), want("topics assigned", len(state.AssignedPartitions()), 1))
	if err != nil {
		return err
	}
	member.CloseAllowingRebalance()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: 7, LeaderEpoch: -1, Metadata: "by hand"})
	if committed, err := admin.CommitOffsets(t, group, offsets); firstOf(err, committed.Error()) != nil {
		return firstOf(err, committed.Error())
	}
	fetched, err := admin.FetchOffsets(t, group)
	offset, _ := fetched.Lookup(topic, 0)
	err = firstOf(err, offset.Err, want("committed", offset.At, 7), want("metadata", offset.Metadata, "by hand"))
	if err != nil {
		return err
	}
	lags, err := admin.Lag(t, group)
	behind := lags[group]
	lag, _ := behind.Lag.Lookup(topic, 0)
	if err := firstOf(err, behind.Error(), want("lag", lag.Lag, lag.End.Offset-7)); err != nil {
		return err
	}
	listed, err := admin.ListGroups(t, "Empty")
	if _, is := listed[group]; err != nil || !is {
		return fmt.Errorf("not among the empty groups: %v", err)
	}
	gone, err := admin.DeleteGroups(t, group)
	if err := firstOf(err, gone.Error()); err != nil {
		return err
	}
	gone, err = admin.DeleteGroups(t, group)
	if err != nil || !errors.Is(gone[group].Err, kerr.GroupIDNotFound) {
		return fmt.Errorf("deleted twice: %v, %v", err, gone)
	}
	return nil
}

func franzCluster(t *trial) error {
	client, topic, err := franzTopic(t, 2)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	brokers, err := admin.ListBrokers(t)
	if err := firstOf(err, want("brokers", len(brokers), 1)); err != nil {
		return err
	}
	var set kadm.TopicsSet
	set.Add(topic, 0, 1)
	err = eventually(t, func() error {
		directories, err := admin.DescribeAllLogDirs(t, set)
		found := 0
		directories.Each(func(one kadm.DescribedLogDir) { found += len(one.Topics[topic]) })
		return firstOf(err, want("partitions in directories", found, 2))
	})
	if err != nil {
		return err
	}
	versions, err := admin.ApiVersions(t)
	if err != nil {
		return err
	}
	is := false
	for _, one := range versions {
		_, most, has := one.KeyVersions(int16(kmsg.Produce))
		is = has && most >= 13
	}
	return firstOf(want("Produce 13", is, true), client.Ping(t))
}
