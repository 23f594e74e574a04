package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func config(group string) *rocketmq.Config {
	return &rocketmq.Config{
		Endpoint:      os.Args[1],
		ConsumerGroup: group,
		Credentials: &credentials.SessionCredentials{
			AccessKey:    os.Getenv("ACCESS_KEY"),
			AccessSecret: os.Getenv("SECRET"),
		},
	}
}

func producer(topic string) rocketmq.Producer {
	checker := &rocketmq.TransactionChecker{
		Check: func(message *rocketmq.MessageView) rocketmq.TransactionResolution {
			expect(string(message.GetBody()), "left behind")
			return rocketmq.COMMIT
		},
	}
	client, err := rocketmq.NewProducer(
		config(""), rocketmq.WithTopics(topic), rocketmq.WithTransactionChecker(checker))
	check(err)
	check(client.Start())
	return client
}

func message(topic string, body string) *rocketmq.Message {
	return &rocketmq.Message{Topic: topic, Body: []byte(body)}
}

func send(topic string, messages ...*rocketmq.Message) {
	client := producer(topic)
	for _, each := range messages {
		_, err := client.Send(context.Background(), each)
		check(err)
	}
	check(client.GracefulStop())
}

func simple(topic string, group string, expression *rocketmq.FilterExpression) rocketmq.SimpleConsumer {
	client, err := rocketmq.NewSimpleConsumer(
		config(group),
		rocketmq.WithSimpleAwaitDuration(2*time.Second),
		rocketmq.WithSimpleSubscriptionExpressions(map[string]*rocketmq.FilterExpression{topic: expression}),
	)
	check(err)
	check(client.Start())
	return client
}

// poll returns no messages if there are none: the client has an error for that.
func poll(client rocketmq.SimpleConsumer, invisible time.Duration) []*rocketmq.MessageView {
	found, err := client.Receive(context.Background(), 32, invisible)
	if err != nil && strings.Contains(err.Error(), "MESSAGE_NOT_FOUND") {
		return nil
	}
	check(err)
	return found
}

func received(client rocketmq.SimpleConsumer, count int) []*rocketmq.MessageView {
	late := time.Now().Add(deadline)
	var found []*rocketmq.MessageView
	for len(found) < count {
		if time.Now().After(late) {
			panic(fmt.Sprintf("%d of %d messages came", len(found), count))
		}
		for _, each := range poll(client, 20*time.Second) {
			check(client.Ack(context.Background(), each))
			found = append(found, each)
		}
	}
	return found
}

// only these messages come, and no others that were sent before.
func only(client rocketmq.SimpleConsumer, wanted ...string) {
	var bodies []string
	for _, each := range append(received(client, len(wanted)), poll(client, 20*time.Second)...) {
		bodies = append(bodies, string(each.GetBody()))
	}
	sort.Strings(bodies)
	expect(bodies, wanted)
	check(client.GracefulStop())
}

func pushed(topic string, consume func(*rocketmq.MessageView) rocketmq.ConsumerResult) rocketmq.PushConsumer {
	return selected(topic, topic, everything, consume)
}

func selected(
	topic string,
	group string,
	expression *rocketmq.FilterExpression,
	consume func(*rocketmq.MessageView) rocketmq.ConsumerResult,
) rocketmq.PushConsumer {
	client, err := rocketmq.NewPushConsumer(
		config(group),
		rocketmq.WithPushAwaitDuration(5*time.Second),
		rocketmq.WithPushSubscriptionExpressions(map[string]*rocketmq.FilterExpression{topic: expression}),
		rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{Consume: consume}),
	)
	check(err)
	check(client.Start())
	return client
}

func next(came chan string) string {
	select {
	case each := <-came:
		return each
	case <-time.After(deadline):
		panic("a message has not come")
	}
}
