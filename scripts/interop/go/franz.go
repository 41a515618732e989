// franz-go: records of every codec, groups of both protocols, offsets by time.

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func franzSteps() []step {
	var steps []step
	for _, codec := range codecs {
		steps = append(steps, step{"franz-go: write and read, " + codec, func(t *trial) error {
			return franzCodec(t, codec)
		}})
	}
	groups := map[string][]kgo.Opt{
		"range":              {kgo.Balancers(kgo.RangeBalancer())},
		"roundrobin":         {kgo.Balancers(kgo.RoundRobinBalancer())},
		"sticky":             {kgo.Balancers(kgo.StickyBalancer())},
		"cooperative-sticky": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
		"consumer protocol":  {kgo.ServerSideBalancer()},
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		steps = append(steps, step{"franz-go: a group of two, " + name, func(t *trial) error {
			return franzGroup(t, groups[name])
		}})
	}
	return append(steps,
		step{"franz-go: offsets by time", franzTimes},
		step{"franz-go: a static member comes back", franzStatic},
		step{"franz-go: a reader waits for what is written later", franzTail},
	)
}

func franzClient(t *trial, options ...kgo.Opt) (*kgo.Client, error) {
	given := []kgo.Opt{kgo.SeedBrokers(t.bootstrap), kgo.MetadataMinAge(100 * time.Millisecond)}
	return kgo.NewClient(append(given, options...)...)
}

// franzTopic creates a topic and returns its name with a client.
func franzTopic(t *trial, partitions int32, options ...kgo.Opt) (*kgo.Client, string, error) {
	client, err := franzClient(t, options...)
	if err != nil {
		return nil, "", err
	}
	topic := t.named("t")
	_, err = kadm.NewClient(client).CreateTopic(t, partitions, 1, nil, topic)
	return client, topic, err
}

func franzRecords(topic string, records []record) []*kgo.Record {
	made := make([]*kgo.Record, len(records))
	for i, one := range records {
		made[i] = &kgo.Record{Topic: topic, Key: one.key, Value: one.value, Timestamp: time.UnixMilli(one.ms)}
		for _, h := range one.headers {
			made[i].Headers = append(made[i].Headers, kgo.RecordHeader{Key: h.key, Value: h.value})
		}
	}
	return made
}

func franzRead(ctx context.Context, client *kgo.Client, count int) ([]record, error) {
	var read []record
	for len(read) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return read, fmt.Errorf("after %d records: %w", len(read), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			one := record{key: r.Key, value: r.Value, ms: r.Timestamp.UnixMilli()}
			for _, h := range r.Headers {
				one.headers = append(one.headers, header{h.Key, h.Value})
			}
			read = append(read, one)
		})
	}
	return read, nil
}

func franzCodec(t *trial, codec string) error {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	writer, topic, err := franzTopic(t, 1, kgo.ProducerBatchCompression(codecs[codec]))
	if err != nil {
		return err
	}
	defer writer.Close()
	wrote := sample()
	if err := writer.ProduceSync(t, franzRecords(topic, wrote)...).FirstErr(); err != nil {
		return err
	}
	reader, err := franzClient(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer reader.Close()
	read, err := franzRead(t, reader, len(wrote))
	return firstOf(err, same(wrote, read, false))
}

func franzTimes(t *trial) error {
	client, topic, err := franzTopic(t, 1)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.ProduceSync(t, franzRecords(topic, sample())...).FirstErr(); err != nil {
		return err
	}
	admin := kadm.NewClient(client)
	for _, asked := range []struct{ ms, offset, at int64 }{
		{firstMs - 1, 0, firstMs},
		{firstMs + 100_000, 100, firstMs + 100_000},
		{firstMs + 100_001, 101, firstMs + 101_000},
		{firstMs + 1000*sampleSize, sampleSize, -1},
	} {
		listed, err := admin.ListOffsetsAfterMilli(t, asked.ms, topic)
		found, _ := listed.Lookup(topic, 0)
		err = firstOf(err, found.Err,
			want(fmt.Sprint("offset at ", asked.ms), found.Offset, asked.offset),
			want(fmt.Sprint("timestamp at ", asked.ms), found.Timestamp, asked.at))
		if err != nil {
			return err
		}
	}
	newest, err := admin.ListMaxTimestampOffsets(t, topic)
	found, _ := newest.Lookup(topic, 0)
	if err := firstOf(err, found.Err, want("offset of the newest", found.Offset, sampleSize-1)); err != nil {
		return err
	}
	there := kgo.NewOffset().AfterMilli(firstMs + 250_000)
	reader, err := franzClient(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(there))
	if err != nil {
		return err
	}
	defer reader.Close()
	read, err := franzRead(t, reader, sampleSize-250)
	return firstOf(err, want("records from there on", len(read), sampleSize-250))
}

// franzMember joins a group, notes its partitions and reads until it is closed.
func franzMember(t *trial, name, topic string, own *owners, counts *tally, options ...kgo.Opt) (*kgo.Client, error) {
	member, err := franzClient(t, append([]kgo.Opt{
		kgo.ClientID(name), kgo.ConsumerGroup(t.named("g")), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.FetchMaxWait(200 * time.Millisecond), kgo.BlockRebalanceOnPoll(), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { own.add(name, m[topic]) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { own.remove(name, m[topic]) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { own.remove(name, m[topic]) }),
	}, options...)...)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			fetches := member.PollRecords(t, 50)
			if fetches.IsClientClosed() || t.Err() != nil {
				return
			}
			fetches.EachRecord(func(r *kgo.Record) { counts.read(r.Value) })
			for { // what was read is committed before partitions may go; a commit that a rebalance overtakes is tried again
				err := member.CommitUncommittedOffsets(t)
				if err == nil || t.Err() != nil || !errors.Is(err, kerr.StaleMemberEpoch) {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			member.AllowRebalance()
		}
	}()
	return member, nil
}

func franzGroup(t *trial, options []kgo.Opt) error {
	writer, topic, err := franzTopic(t, 6, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		return err
	}
	defer writer.Close()
	write := func(first, end int) error {
		var records []*kgo.Record
		for i := first; i < end; i++ {
			records = append(records, &kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(i))})
		}
		return writer.ProduceSync(t, records...).FirstErr()
	}
	own, counts := &owners{}, &tally{}
	one, err := franzMember(t, "one", topic, own, counts, options...)
	if err != nil {
		return err
	}
	defer one.CloseAllowingRebalance()
	if err := firstOf(write(0, 300), own.await(t, map[string]int{"one": 6}), counts.awaitEachOnce(t, 300)); err != nil {
		return err
	}
	two, err := franzMember(t, "two", topic, own, counts, options...)
	if err != nil {
		return err
	}
	defer two.CloseAllowingRebalance()
	err = firstOf(own.await(t, map[string]int{"one": 3, "two": 3}), write(300, 600), counts.awaitEachOnce(t, 600))
	if err != nil {
		return err
	}
	two.CloseAllowingRebalance()
	return firstOf(own.await(t, map[string]int{"one": 6}), write(600, 900), counts.awaitEachOnce(t, 900))
}

func franzStatic(t *trial) error {
	client, topic, err := franzTopic(t, 4)
	if err != nil {
		return err
	}
	defer client.Close()
	own, counts := &owners{}, &tally{}
	admin := kadm.NewClient(client)
	var generations []string
	for range 2 {
		member, err := franzMember(t, "one", topic, own, counts, kgo.InstanceID("fixed"))
		if err != nil {
			return err
		}
		err = own.await(t, map[string]int{"one": 4})
		described, _ := admin.DescribeGroups(t, t.named("g"))
		group := described[t.named("g")]
		if members := group.Members; err == nil &&
			(len(members) != 1 || members[0].InstanceID == nil || *members[0].InstanceID != "fixed") {
			err = fmt.Errorf("the group's members are %v", group.Members)
		}
		member.CloseAllowingRebalance() // a static member does not leave
		own.set("one", nil)
		if err != nil {
			return err
		}
		generations = append(generations, group.State)
	}
	return firstOf(want("state at first", generations[0], "Stable"), want("state after it", generations[1], "Stable"))
}

func franzTail(t *trial) error {
	writer, topic, err := franzTopic(t, 1)
	if err != nil {
		return err
	}
	defer writer.Close()
	reader, err := franzClient(t, kgo.ConsumeTopics(topic), kgo.FetchMaxWait(20*time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer reader.Close()
	for i := range 20 {
		if err := writer.ProduceSync(t, &kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(i))}).FirstErr(); err != nil {
			return err
		}
		begun := time.Now()
		read, err := franzRead(t, reader, 1)
		if err != nil {
			return err
		}
		if time.Since(begun) > 5*time.Second || string(read[0].value) != strconv.Itoa(i) {
			return fmt.Errorf("record %d came as %q after %v", i, read[0].value, time.Since(begun))
		}
	}
	return nil
}
