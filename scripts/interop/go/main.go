// Go's Kafka clients against one broker: the writes, reads and calls of each, step by step.
//
//	go run . HOST:PORT [ONLY]
//	go run . secured FILE [ONLY]
//
// The second one is for a broker with TLS, SASL and ACLs; FILE names the users (scripts/interop/secured-clients).
// A step is a function that returns its error. Only steps that begin with the word ONLY run. The exit status is 1
// if any step failed. scripts/interop/go-clients starts the broker and this program.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

const stepTimeout = 90 * time.Second

// A step has a unique name, which its topics and groups contain, too.
type step struct {
	name string
	run  func(*trial) error
}

// trial has what a step may use: the broker's address, a deadline, and names that no other step or run uses.
type trial struct {
	context.Context
	bootstrap string
	prefix    string
}

func (t *trial) named(what string) string { return t.prefix + what }

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "go run . HOST:PORT [ONLY]")
		os.Exit(64)
	}
	only := ""
	if len(os.Args) > 2 {
		only = os.Args[2]
	}
	var steps []step
	if os.Args[1] == "secured" && len(os.Args) > 2 {
		var err error
		if steps, err = securedSteps(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(64)
		}
		only = strings.Join(os.Args[3:], "")
	} else {
		steps = plainSteps()
	}
	run, good := 0, 0
	for number, one := range steps {
		if !strings.HasPrefix(one.name, only) {
			continue
		}
		run++
		begun := time.Now()
		err := attempt(one, os.Args[1], fmt.Sprintf("go-%d-%d-", begun.Unix(), number))
		if err == nil {
			good++
			fmt.Printf("ok   %5.1f s  %s\n", time.Since(begun).Seconds(), one.name)
		} else {
			said := strings.ReplaceAll(err.Error(), "\n", "\n      ")
			fmt.Printf("FAIL %5.1f s  %s\n      %s\n", time.Since(begun).Seconds(), one.name, said)
		}
	}
	fmt.Printf("%d of %d\n", good, run)
	if good < run || run == 0 {
		os.Exit(1)
	}
}

// plainSteps are those of a broker without security.
func plainSteps() []step {
	return slices.Concat(franzSteps(), franzAdminSteps(), saramaSteps(), saramaAdminSteps(), kafkaGoSteps(), transactionSteps())
}

// attempt runs a step to its end or to the deadline; a client that hangs and ignores its context is left running.
func attempt(one step, bootstrap, prefix string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer func() {
			if bug := recover(); bug != nil {
				done <- fmt.Errorf("panic: %v", bug)
			}
		}()
		done <- one.run(&trial{ctx, bootstrap, prefix})
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(stepTimeout + 5*time.Second):
		return fmt.Errorf("no end within %v", stepTimeout)
	}
}
