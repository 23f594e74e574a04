package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

type answer func(context.Context, *primitive.MessageExt) consumer.ConsumeResult

func (r *received) listen(context context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	for _, each := range messages {
		r.messages <- each
		if r.answer == nil {
			continue
		}
		if result := r.answer(context, each); result != consumer.ConsumeSuccess {
			return result, nil
		}
	}
	return consumer.ConsumeSuccess, nil
}

// filters sends to one queue, and last a message that all filters take.
func filters([]string) {
	client := producing("filters", producer.WithQueueSelector(producer.NewHashQueueSelector()))
	tags := []string{"red", "blue", "green"}
	for number := 0; number <= 12; number++ {
		made := message("filters", fmt.Sprintf("m%d", number)).WithTag(tags[number%3]).WithShardingKey("one queue")
		made.WithProperty("amount", strconv.Itoa(number))
		if number%2 == 0 {
			made.WithProperty("shop", "Berlin")
		}
		send(client, made)
	}
	byTag := receiving(nil)
	tagged := pushing("by-tag", "filters", consumer.MessageSelector{Type: consumer.TAG, Expression: "red || blue"}, byTag)
	bySQL := receiving(nil)
	condition := "amount BETWEEN 3 AND 8 AND shop = 'Berlin' OR TAGS = 'green' OR amount > 11"
	selected := pushing("by-sql", "filters", consumer.MessageSelector{Type: consumer.SQL92, Expression: condition}, bySQL)
	byTag.expect("m0", "m1", "m3", "m4", "m6", "m7", "m9", "m10", "m12")
	bySQL.expect("m2", "m4", "m5", "m6", "m8", "m11", "m12")
	check(tagged.Shutdown())
	check(selected.Shutdown())
	check(client.Shutdown())
}

func broadcasting([]string) {
	client := producing("broadcasting")
	for _, body := range numbered("", 0, 10) {
		send(client, message("broadcasting", body))
	}
	var consumers []rocketmq.PushConsumer
	all := []*received{receiving(nil), receiving(nil)}
	for _, each := range all {
		model := consumer.WithConsumerModel(consumer.BroadCasting)
		consumers = append(consumers, pushing("broadcasting", "broadcasting", everything, each, model))
	}
	for place, each := range all {
		each.expect(numbered("", 0, 10)...)
		check(consumers[place].Shutdown())
	}
	check(client.Shutdown())
}

func pulling(group string, topic string) rocketmq.PullConsumer {
	client, err := rocketmq.NewPullConsumer(consumerOptions(group)...)
	check(err)
	check(client.Subscribe(topic, everything))
	check(client.Start())
	return client
}

// pulls polls in a group, goes on where the group has been, and reads a queue from an offset.
func pulls([]string) {
	client := producing("pulls", producer.WithQueueSelector(producer.NewHashQueueSelector()))
	var sent *primitive.SendResult
	sendSome := func(first int, end int) {
		for _, body := range numbered("", first, end) {
			sent = send(client, message("pulls", body).WithShardingKey("one queue"))
		}
	}
	sendSome(0, 10)
	first := pulling("pulls", "pulls")
	poll(first, 0, 10)
	check(first.PersistOffset(context.Background(), "pulls"))
	check(first.Shutdown())
	sendSome(10, 15)
	second := pulling("pulls", "pulls")
	poll(second, 10, 15)
	result, err := second.PullFrom(context.Background(), sent.MessageQueue, 3, 7)
	check(err)
	expect(result.Status == primitive.PullFound, result)
	expect(fmt.Sprint(bodies(result.GetMessageExts())) == fmt.Sprint(numbered("", 3, 10)), result)
	expect(result.NextBeginOffset == 10 && result.MaxOffset == 15, result)
	check(second.Shutdown())
	check(client.Shutdown())
}

// poll takes the messages of one queue that are numbered from first to end, and acknowledges them.
func poll(client rocketmq.PullConsumer, first int, end int) {
	var found []string
	for late := time.Now().Add(deadline); len(found) < end-first; {
		expect(time.Now().Before(late), found)
		request, err := client.Poll(context.Background(), time.Second)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		check(err)
		found = append(found, bodies(request.GetMsgList())...)
		client.ACK(context.Background(), request, consumer.ConsumeSuccess)
	}
	expect(fmt.Sprint(found) == fmt.Sprint(numbered("", first, end)), found)
}

// retries tries twice more, after a second each. Then the message is a dead letter.
func retries([]string) {
	client := producing("retries")
	send(client, message("retries", "good").WithTag("tag"))
	bad := message("retries", "bad").WithTag("tag").WithKeys([]string{"key"})
	bad.WithProperty("colour", "red")
	send(client, bad)
	tried := receiving(func(context context.Context, each *primitive.MessageExt) consumer.ConsumeResult {
		concurrently, _ := primitive.GetConcurrentlyCtx(context)
		concurrently.DelayLevelWhenNextConsume = 1
		if string(each.Body) == "bad" {
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	})
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "tag"}
	pushed := pushing("retries", "retries", selector, tried, consumer.WithMaxReconsumeTimes(2))
	times := int32(0)
	for _, each := range tried.expect("good", "bad", "bad", "bad") {
		if string(each.Body) == "bad" {
			expect(each.ReconsumeTimes == times, each)
			expect(each.GetTags() == "tag" && each.GetKeys() == "key" && each.GetProperty("colour") == "red", each)
			times++
		}
	}
	dead := receiving(nil)
	undertaker := existing("undertaker", "%DLQ%retries", dead)
	for _, each := range dead.expect("bad") {
		expect(each.GetTags() == "tag" && each.GetKeys() == "key" && each.GetProperty("colour") == "red", each)
		expect(each.GetProperty("RETRY_TOPIC") == "retries", each)
	}
	check(undertaker.Shutdown())
	check(pushed.Shutdown())
	check(client.Shutdown())
}

// existing consumes a topic that is only created now: consumers do not start before that.
func existing(group string, topic string, came *received) rocketmq.PushConsumer {
	for late := time.Now().Add(deadline); ; time.Sleep(100 * time.Millisecond) {
		client, err := rocketmq.NewPushConsumer(consumerOptions(group)...)
		check(err)
		check(client.Subscribe(topic, everything, came.listen))
		err = client.Start()
		if err == nil {
			return client
		}
		expect(time.Now().Before(late), err)
	}
}

// replay has the time of a record of the topic `replay`, and its number.
func replay(arguments []string) {
	timestamp, err := strconv.ParseInt(arguments[0], 10, 64)
	check(err)
	first, err := strconv.Atoi(arguments[1])
	check(err)
	came := receiving(nil)
	pushed := pushing(
		"replay", "replay", everything, came,
		consumer.WithConsumeFromWhere(consumer.ConsumeFromTimestamp),
		consumer.WithConsumeTimestamp(time.UnixMilli(timestamp).UTC().Format("20060102150405")),
	)
	came.expect(numbered("", first, 10)...)
	check(pushed.Shutdown())
}
