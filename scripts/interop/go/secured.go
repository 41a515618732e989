// TLS and SASL: allowed and refused requests of a user with the rights to one topic and one group, by franz-go and sarama.

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xdg "github.com/xdg-go/scram"
)

// user has the credentials of a login: by a mechanism with a password (OAUTHBEARER: a token), or by a certificate.
type user struct {
	Name, Mechanism, Password, Address string
	CA, Chain, Key                     string // files
}

const securedCount = 20

func securedSteps(file string) ([]step, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var users []user
	if err := json.Unmarshal(content, &users); err != nil {
		return nil, err
	}
	clients := []struct {
		name             string
		use, refused, no func(*trial, user) error
	}{
		{"franz-go", franzSecured, franzRefused, franzNoLogin},
		{"sarama", saramaSecured, saramaRefused, saramaNoLogin},
	}
	var steps []step
	for _, client := range clients {
		for _, one := range users {
			steps = append(steps,
				step{client.name + ": write and read in a group as " + one.Name, func(t *trial) error { return client.use(t, one) }},
				step{client.name + ": another topic and group refused to " + one.Name, func(t *trial) error { return client.refused(t, one) }})
			wrong := one
			switch one.Mechanism {
			case "":
				wrong.Chain = ""
			default:
				wrong.Password = "wrong"
			}
			steps = append(steps, step{client.name + ": no login with a wrong secret of " + one.Name, func(t *trial) error {
				return client.no(t, wrong)
			}})
		}
	}
	return steps, nil
}

func (u user) tls() (*tls.Config, error) {
	authority, err := os.ReadFile(u.CA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	if u.Chain != "" {
		pair, err := tls.LoadX509KeyPair(u.Chain, u.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func franzAs(t *trial, u user, options ...kgo.Opt) (*kgo.Client, error) {
	config, err := u.tls()
	if err != nil {
		return nil, err
	}
	mechanisms := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: u.Name, Pass: u.Password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: u.Name, Pass: u.Password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: u.Name, Pass: u.Password}.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: u.Password}.AsMechanism(),
	}
	options = append([]kgo.Opt{kgo.SeedBrokers(u.Address), kgo.DialTLSConfig(config)}, options...)
	if u.Mechanism != "" {
		options = append(options, kgo.SASL(mechanisms[u.Mechanism]))
	}
	return kgo.NewClient(options...)
}

func franzSecured(t *trial, u user) error {
	client, err := franzAs(t, u, kgo.ConsumerGroup(u.Name), kgo.ConsumeTopics("secured"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	for i := range securedCount {
		records = append(records, &kgo.Record{Topic: "secured", Value: fmt.Append(nil, t.prefix, i)})
	}
	if err := client.ProduceSync(t, records...).FirstErr(); err != nil {
		return err
	}
	counts := &tally{}
	for len(counts.times) < securedCount {
		fetches := client.PollFetches(t)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) { counts.readOwn(t, r.Value) })
	}
	return firstOf(client.CommitUncommittedOffsets(t), counts.awaitEachOnce(t, securedCount))
}

// readOwn counts the records of this step; other clients write to the same topic.
func (c *tally) readOwn(t *trial, value []byte) {
	if len(value) > len(t.prefix) && string(value[:len(t.prefix)]) == t.prefix {
		c.read(value)
	}
}

func franzRefused(t *trial, u user) error {
	writer, err := franzAs(t, u)
	if err != nil {
		return err
	}
	defer writer.Close()
	err = writer.ProduceSync(t, &kgo.Record{Topic: "hidden", Value: []byte("x")}).FirstErr()
	if !errors.Is(err, kerr.TopicAuthorizationFailed) {
		return fmt.Errorf("a record to another topic: %v", err)
	}
	reader, err := franzAs(t, u, kgo.ConsumerGroup("hidden"), kgo.ConsumeTopics("secured"))
	if err != nil {
		return err
	}
	defer reader.Close()
	if err := reader.PollFetches(t).Err(); !errors.Is(err, kerr.GroupAuthorizationFailed) {
		return fmt.Errorf("another group: %v", err)
	}
	return nil
}

func franzNoLogin(t *trial, u user) error {
	client, err := franzAs(t, u)
	if err != nil {
		return err
	}
	defer client.Close()
	return noLogin(u, client.Ping(t), kerr.SaslAuthenticationFailed)
}

// noLogin judges the error of a login that must fail: the one that is given, or by TLS that a certificate is missing.
// To a bad token Kafka answers with a challenge that says why (RFC 7628); franz-go ends there, with its own message.
func noLogin(u user, err, failed error) error {
	switch {
	case err == nil:
		return errors.New("it could log in")
	case u.Mechanism == "" && strings.Contains(err.Error(), "certificate required"), // what OpenSSL says
		u.Mechanism == "" && strings.Contains(err.Error(), "bad certificate"), // what Java says
		u.Mechanism == "OAUTHBEARER" && strings.Contains(err.Error(), "unexpected data in oauth response"),
		u.Mechanism != "" && errors.Is(err, failed):
		return nil
	}
	return fmt.Errorf("the login failed otherwise: %w", err)
}

// conversation has the methods that sarama needs of a SCRAM library.
type conversation struct {
	hash xdg.HashGeneratorFcn
	*xdg.ClientConversation
}

func (c *conversation) Begin(name, password, authorization string) error {
	client, err := c.hash.NewClient(name, password, authorization)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

type token string

func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func saramaAs(u user) (*sarama.Config, error) {
	config := saramaConfig()
	secure, err := u.tls()
	if err != nil {
		return nil, err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = true, secure
	config.Metadata.Retry.Max, config.Producer.Retry.Max, config.Consumer.Group.Rebalance.Retry.Max = 1, 1, 1
	if u.Mechanism == "" {
		return config, nil
	}
	given := &config.Net.SASL
	given.Enable, given.User, given.Password = true, u.Name, u.Password
	given.Mechanism = sarama.SASLMechanism(u.Mechanism)
	hashes := map[string]xdg.HashGeneratorFcn{"SCRAM-SHA-256": xdg.SHA256, "SCRAM-SHA-512": xdg.SHA512}
	given.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: hashes[u.Mechanism]} }
	given.TokenProvider = token(u.Password)
	return config, nil
}

// securedMember reads the records of its step, and ends when it has all.
type securedMember struct {
	saramaMember
	trial *trial
	all   context.CancelFunc
}

func (m *securedMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			m.counts.readOwn(m.trial, message.Value)
			session.MarkMessage(message, "")
			m.counts.lock.Lock()
			if len(m.counts.times) == securedCount {
				m.all()
			}
			m.counts.lock.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}

func saramaSecured(t *trial, u user) error {
	config, err := saramaAs(u)
	if err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducer([]string{u.Address}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for i := range securedCount {
		messages = append(messages, &sarama.ProducerMessage{Topic: "secured", Value: sarama.StringEncoder(fmt.Sprint(t.prefix, i))})
	}
	if err := producer.SendMessages(messages); err != nil {
		return err
	}
	group, err := sarama.NewConsumerGroup([]string{u.Address}, u.Name, config)
	if err != nil {
		return err
	}
	ctx, all := context.WithCancel(t)
	defer all()
	member := &securedMember{saramaMember{u.Name, "secured", &owners{}, &tally{}}, t, all}
	for ctx.Err() == nil && err == nil {
		err = group.Consume(ctx, []string{"secured"}, member)
	}
	return firstOf(err, group.Close(), member.counts.awaitEachOnce(t, securedCount))
}

func saramaRefused(t *trial, u user) error {
	config, err := saramaAs(u)
	if err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducer([]string{u.Address}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: "hidden", Value: sarama.StringEncoder("x")})
	if !errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
		return fmt.Errorf("a record to another topic: %v", err)
	}
	group, err := sarama.NewConsumerGroup([]string{u.Address}, "hidden", config)
	if err != nil {
		return err
	}
	defer group.Close()
	err = group.Consume(t, []string{"secured"}, &saramaMember{u.Name, "secured", &owners{}, &tally{}})
	if !errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
		return fmt.Errorf("another group: %v", err)
	}
	return nil
}

func saramaNoLogin(_ *trial, u user) error {
	config, err := saramaAs(u)
	if err != nil {
		return err
	}
	client, err := sarama.NewClient([]string{u.Address}, config)
	if err == nil {
		client.Close()
	}
	return noLogin(u, err, sarama.ErrSASLAuthenticationFailed)
}
