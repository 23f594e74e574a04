// RocketMQ's client in Go: `ADDRESS send TOPIC COUNT` or `ADDRESS receive TOPIC COUNT`.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const deadline = 90 * time.Second

func main() {
	rlog.SetLogLevel("error")
	address, command, topic := os.Args[1], os.Args[2], os.Args[3]
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	servers := primitive.NewPassthroughResolver([]string{address})
	switch command {
	case "send":
		send(servers, topic, count)
	case "receive":
		receive(servers, topic, count)
	default:
		panic(command)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func send(servers primitive.NsResolver, topic string, count int) {
	client, err := rocketmq.NewProducer(producer.WithGroupName("go-producers"), producer.WithNsResolver(servers))
	check(err)
	check(client.Start())
	for number := 0; number < count; number++ {
		message := primitive.NewMessage(topic, []byte(fmt.Sprintf("go %d", number)))
		message.WithTag("go").WithKeys([]string{fmt.Sprintf("key%d", number)})
		message.WithProperty("tenant", "blåu")
		result, err := client.SendSync(context.Background(), message)
		check(err)
		if result.Status != primitive.SendOK {
			check(fmt.Errorf("sent with status %d", result.Status))
		}
	}
	check(client.Shutdown())
}

// receive prints a line for each message.
func receive(servers primitive.NsResolver, topic string, count int) {
	client, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName("go-consumers"),
		consumer.WithNsResolver(servers),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err)
	lines := make(chan string, count)
	consume := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, each := range messages {
			lines <- fmt.Sprintf("%s %s %s %s", each.Body, each.GetKeys(), each.GetTags(), each.GetProperty("tenant"))
		}
		return consumer.ConsumeSuccess, nil
	}
	check(client.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}, consume))
	check(client.Start())
	late := time.After(deadline)
	for number := 0; number < count; number++ {
		select {
		case line := <-lines:
			fmt.Println(line)
		case <-late:
			check(fmt.Errorf("%d of %d messages came", number, count))
		}
	}
	check(client.Shutdown())
}
