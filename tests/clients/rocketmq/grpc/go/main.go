// The steps of `grpc_steps` with RocketMQ's gRPC client in Go.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
)

const deadline = 90 * time.Second

var everything = rocketmq.NewFilterExpression("*")

var steps = map[string]func(){
	"exchange":     exchange,
	"ordered":      ordered,
	"delayed":      delayed,
	"recall":       recall,
	"transactions": transactions,
	"crash":        crash,
	"takeover":     takeover,
	"filters":      filters,
	"selective":    selective,
	"refused":      refused,
	"retries":      retries,
	"redelivery":   redelivery,
	"inbox":        inbox,
}

func main() {
	rocketmq.EnableSsl = os.Args[2] == "tls"
	rocketmq.ResetLogger()
	var running sync.WaitGroup
	for _, name := range os.Args[3:] {
		running.Add(1)
		go func() {
			defer running.Done()
			steps[name]()
			fmt.Println("done " + name)
		}()
	}
	running.Wait()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(found any, wanted any) {
	if !reflect.DeepEqual(found, wanted) {
		panic(fmt.Sprintf("found %v, wanted %v", found, wanted))
	}
}

func tag(number int) string {
	return []string{"even", "odd"}[number%2]
}

func exchange() {
	var messages []*rocketmq.Message
	for number := 0; number < 10; number++ {
		made := message("exchange", fmt.Sprintf("message %d", number))
		made.SetTag(tag(number))
		made.SetKeys(fmt.Sprintf("key%d", number))
		made.AddProperty("tenant", "blåu")
		messages = append(messages, made)
	}
	send("exchange", messages...)
	client := simple("exchange", "exchange", everything)
	for _, each := range received(client, 10) {
		number, err := strconv.Atoi(strings.Fields(string(each.GetBody()))[1])
		check(err)
		expect(*each.GetTag(), tag(number))
		expect(each.GetKeys(), []string{fmt.Sprintf("key%d", number)})
		expect(each.GetProperties(), map[string]string{"tenant": "blåu"})
		expect(each.GetDeliveryAttempt(), int32(1))
	}
	check(client.GracefulStop())
}

func ordered() {
	groups := []string{"a", "b"}
	var messages []*rocketmq.Message
	for number := 0; number < 10; number++ {
		for _, group := range groups {
			made := message("ordered", fmt.Sprintf("%s %d", group, number))
			made.SetMessageGroup(group)
			messages = append(messages, made)
		}
	}
	send("ordered", messages...)
	came := make(chan string, 100)
	client := pushed("ordered", func(each *rocketmq.MessageView) rocketmq.ConsumerResult {
		came <- string(each.GetBody())
		return rocketmq.SUCCESS
	})
	following := map[string]int{}
	for range messages {
		words := strings.Fields(next(came))
		expect(words[1], strconv.Itoa(following[words[0]]))
		following[words[0]]++
	}
	check(client.GracefulStop())
}

func delayed() {
	due := time.Now().Add(3 * time.Second)
	made := message("delayed", "later")
	made.SetDelayTimestamp(due)
	send("delayed", made)
	client := simple("delayed", "delayed", everything)
	expect(string(received(client, 1)[0].GetBody()), "later")
	if time.Now().Before(due.Truncate(time.Second)) {
		panic("the message came too early")
	}
	check(client.GracefulStop())
}

// recall takes back one of two that are due at the same time.
func recall() {
	client := producer("recall")
	due := time.Now().Add(5 * time.Second)
	var handles []string
	for _, body := range []string{"recalled", "delivered"} {
		made := message("recall", body)
		made.SetDelayTimestamp(due)
		receipts, err := client.Send(context.Background(), made)
		check(err)
		handles = append(handles, receipts[0].RecallHandle)
	}
	_, err := client.Recall(context.Background(), "recall", handles[0])
	check(err)
	only(simple("recall", "recall", everything), "delivered")
	check(client.GracefulStop())
}

func transactions() {
	client := producer("transactions")
	for _, body := range []string{"yes", "no"} {
		transaction := client.BeginTransaction()
		_, err := client.SendWithTransaction(context.Background(), message("transactions", body), transaction)
		check(err)
		if body == "yes" {
			check(transaction.Commit())
		} else {
			check(transaction.RollBack())
		}
	}
	only(simple("transactions", "transactions", everything), "yes")
	check(client.GracefulStop())
}

func crash() {
	client := producer("takeover")
	_, err := client.SendWithTransaction(
		context.Background(), message("takeover", "left behind"), client.BeginTransaction())
	check(err)
	os.Exit(7)
}

func takeover() {
	client := producer("takeover")
	only(simple("takeover", "takeover", everything), "left behind")
	check(client.GracefulStop())
}

func filters() {
	var messages []*rocketmq.Message
	for _, tag := range []string{"red", "green", "blue"} {
		made := message("filters", tag)
		made.SetTag(tag)
		made.AddProperty("length", strconv.Itoa(len(tag)))
		messages = append(messages, made)
	}
	send("filters", messages...)
	only(simple("filters", "tags", rocketmq.NewFilterExpression("red || blue")), "blue", "red")
	sql := rocketmq.NewFilterExpressionWithType("length > 3", rocketmq.SQL92)
	only(simple("filters", "sql", sql), "blue", "green")
}

// selective has one queue, and the last message is one that both consumers take.
func selective() {
	var messages []*rocketmq.Message
	for number, tag := range []string{"red", "green", "blue", "red", "green", "blue", "red"} {
		made := message("selective", fmt.Sprintf("%s %d", tag, number))
		made.SetTag(tag)
		made.AddProperty("number", strconv.Itoa(number))
		made.SetMessageGroup("one")
		messages = append(messages, made)
	}
	send("selective", messages...)
	take := func(group string, expression *rocketmq.FilterExpression, wanted ...string) {
		came := make(chan string, 100)
		client := selected("selective", group, expression, func(each *rocketmq.MessageView) rocketmq.ConsumerResult {
			came <- string(each.GetBody())
			return rocketmq.SUCCESS
		})
		var found []string
		for range wanted {
			found = append(found, next(came))
		}
		check(client.GracefulStop())
		sort.Strings(found)
		expect(found, wanted)
		expect(len(came), 0)
	}
	take("by-tag", rocketmq.NewFilterExpression("red || blue"), "blue 2", "blue 5", "red 0", "red 3", "red 6")
	sql := rocketmq.NewFilterExpressionWithType("number BETWEEN 3 AND 4 OR TAGS = 'red'", rocketmq.SQL92)
	take("by-sql", sql, "green 4", "red 0", "red 3", "red 6")
}

// refused is for a login that may not send: it prints why.
func refused() {
	client, err := rocketmq.NewProducer(config(""), rocketmq.WithTopics("refused"))
	check(err)
	if err = client.Start(); err == nil {
		_, err = client.Send(context.Background(), message("refused", "body"))
	}
	if err == nil {
		panic("the message was sent")
	}
	fmt.Println(strings.Join(strings.Fields(err.Error()), " "))
}

func retries() {
	send("retries", message("retries", "bad"), message("retries", "good"))
	came := make(chan string, 100)
	client := pushed("retries", func(each *rocketmq.MessageView) rocketmq.ConsumerResult {
		came <- fmt.Sprintf("%s %d", each.GetBody(), each.GetDeliveryAttempt())
		if string(each.GetBody()) == "good" {
			return rocketmq.SUCCESS
		}
		return rocketmq.FAILURE
	})
	found := []string{next(came), next(came), next(came)}
	sort.Strings(found)
	expect(found, []string{"bad 1", "bad 2", "good 1"})
	only(simple("%DLQ%retries", "undertakers", everything), "bad")
	check(client.GracefulStop())
}

func redelivery() {
	send("redelivery", message("redelivery", "again"))
	client := simple("redelivery", "redelivery", everything)
	late := time.Now().Add(deadline)
	var attempts []int32
	for len(attempts) < 2 {
		if time.Now().After(late) {
			panic(fmt.Sprintf("attempts %v", attempts))
		}
		for _, each := range poll(client, time.Second) {
			attempts = append(attempts, each.GetDeliveryAttempt())
			if len(attempts) == 2 {
				check(client.Ack(context.Background(), each))
			}
		}
	}
	expect(attempts, []int32{1, 2})
	check(client.GracefulStop())
}

func inbox() {
	client := simple("inbox", "inbox", everything)
	found := map[string]*rocketmq.MessageView{}
	for _, each := range received(client, 3) {
		found[string(each.GetBody())] = each
	}
	expect(len(found), 3)
	ofAMQP := found["grüße von AMQP"]
	expect(ofAMQP.GetKeys(), []string{"from.amqp"})
	expect(ofAMQP.GetProperties(), map[string]string{"tenant": "blåu"})
	tagged := found["grüße von Kafka"]
	expect(*tagged.GetTag(), "red")
	expect(tagged.GetKeys(), []string{"from.kafka"})
	expect(tagged.GetProperties(), map[string]string{"tenant": "röt"})
	expect(len(found["ohne alles"].GetKeys()), 0)
	check(client.GracefulStop())
}
