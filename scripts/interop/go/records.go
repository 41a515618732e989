// Shared by the steps of all three clients: the records, their comparison, and waiting.

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

const (
	sampleSize = 300
	firstMs    = int64(1_700_000_000_000)
)

// record is a record as every client has it.
type record struct {
	key, value []byte
	headers    []header
	ms         int64
}

type header struct {
	key   string
	value []byte
}

// sample returns records of all kinds: long ones, empty ones, tombstones, repeated headers. Their times are one second apart.
func sample() []record {
	records := make([]record, sampleSize)
	for i := range records {
		one := record{key: fmt.Appendf(nil, "key-%d", i), ms: firstMs + int64(i)*1000}
		switch i % 5 {
		case 0:
			one.value = bytes.Repeat(fmt.Appendf(nil, "%d,", i), 400)
			one.headers = []header{{"trace", fmt.Appendf(nil, "%d", i)}, {"trace", []byte("again")}}
		case 1:
			one.value = []byte{}
		case 2:
			one.value = nil
		default:
			one.value = fmt.Appendf(nil, "value of %d, with ä and \x00", i)
			one.headers = []header{{"h", []byte("1")}}
		}
		records[i] = one
	}
	return records
}

// same returns the first record that was not read as it was written. With emptyIsNull an empty value may have
// become none: some clients do not distinguish them.
func same(wrote, read []record, emptyIsNull bool) error {
	if len(wrote) != len(read) {
		return fmt.Errorf("%d records written, %d read", len(wrote), len(read))
	}
	for i := range wrote {
		w, r := wrote[i], read[i]
		switch {
		case !bytes.Equal(w.key, r.key):
			return fmt.Errorf("record %d: key %q, not %q", i, r.key, w.key)
		case !bytes.Equal(w.value, r.value):
			return fmt.Errorf("record %d: another value of %d bytes", i, len(r.value))
		case !emptyIsNull && (w.value == nil) != (r.value == nil):
			return fmt.Errorf("record %d: null and empty are mixed up", i)
		case w.ms != r.ms:
			return fmt.Errorf("record %d: timestamp %d, not %d", i, r.ms, w.ms)
		case !slices.EqualFunc(w.headers, r.headers, func(a, b header) bool {
			return a.key == b.key && bytes.Equal(a.value, b.value)
		}):
			return fmt.Errorf("record %d: headers %v, not %v", i, r.headers, w.headers)
		}
	}
	return nil
}

// want is an assertion: the actual value, the expected value.
func want[T comparable](what string, is, should T) error {
	if is != should {
		return fmt.Errorf("%s: %v, not %v", what, is, should)
	}
	return nil
}

// eventually tries until there is no error, for at most ten seconds: a controller may be ahead of its brokers.
func eventually(t *trial, try func() error) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := try()
		if err == nil || time.Now().After(deadline) || t.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// firstOf returns the first error, in order.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// owners notes which member of a group has which partitions.
type owners struct {
	lock sync.Mutex
	has  map[string][]int32
}

func (o *owners) set(member string, partitions []int32) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.has == nil {
		o.has = map[string][]int32{}
	}
	o.has[member] = slices.Sorted(slices.Values(partitions))
}

func (o *owners) add(member string, partitions []int32) {
	o.lock.Lock()
	before := o.has[member]
	o.lock.Unlock()
	o.set(member, append(slices.Clone(before), partitions...))
}

func (o *owners) remove(member string, partitions []int32) {
	o.lock.Lock()
	before := slices.Clone(o.has[member])
	o.lock.Unlock()
	o.set(member, slices.DeleteFunc(before, func(p int32) bool { return slices.Contains(partitions, p) }))
}

// await waits until the members have this number of partitions each, all of them different.
func (o *owners) await(t *trial, counts map[string]int) error {
	for {
		o.lock.Lock()
		var all []int32
		is := true
		for member, count := range counts {
			is = is && len(o.has[member]) == count
			all = append(all, o.has[member]...)
		}
		told := fmt.Sprint(o.has)
		o.lock.Unlock()
		slices.Sort(all)
		if is && len(slices.Compact(slices.Clone(all))) == len(all) {
			return nil
		}
		select {
		case <-t.Done():
			return fmt.Errorf("partitions of the members are %s, they should be %v", told, counts)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tally counts how often each record of a group was read.
type tally struct {
	lock  sync.Mutex
	times map[string]int
}

func (c *tally) read(value []byte) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.times == nil {
		c.times = map[string]int{}
	}
	c.times[string(value)]++
}

// awaitEachOnce waits until `count` different records were read; a record that was read twice is an error.
func (c *tally) awaitEachOnce(t *trial, count int) error {
	for {
		c.lock.Lock()
		var twice []string
		for value, times := range c.times {
			if times > 1 {
				twice = append(twice, value)
			}
		}
		read := len(c.times)
		c.lock.Unlock()
		if len(twice) > 0 {
			return fmt.Errorf("%d records were read more than once: %s", len(twice), strings.Join(twice[:1], ", "))
		}
		if read == count {
			return nil
		}
		select {
		case <-t.Done():
			return fmt.Errorf("%d of %d records were read", read, count)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
