package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func message(topic string, body string) *primitive.Message {
	return primitive.NewMessage(topic, []byte(body))
}

func send(client rocketmq.Producer, messages ...*primitive.Message) *primitive.SendResult {
	sent, err := client.SendSync(context.Background(), messages...)
	check(err)
	expect(sent.Status == primitive.SendOK, sent)
	return sent
}

// normal sends one by one, with a callback, oneway, in a batch, and a body that the client compresses.
func normal([]string) {
	client := producing("normal")
	var wanted []string
	ids := map[string]string{}
	for number := 0; number < 10; number++ {
		body := fmt.Sprintf("one-%d", number)
		made := message("normal", body).WithTag("go").WithKeys([]string{"a" + body, "b" + body})
		made.WithProperty("number", "№ "+strconv.Itoa(number))
		ids[body] = send(client, made).MsgID
		wanted = append(wanted, body)
	}
	var answered sync.WaitGroup
	for number := 0; number < 10; number++ {
		answered.Add(1)
		callback := func(_ context.Context, sent *primitive.SendResult, err error) {
			check(err)
			expect(sent.Status == primitive.SendOK, sent)
			answered.Done()
		}
		check(client.SendAsync(context.Background(), callback, message("normal", fmt.Sprintf("async-%d", number))))
		check(client.SendOneWay(context.Background(), message("normal", fmt.Sprintf("oneway-%d", number))))
		wanted = append(wanted, fmt.Sprintf("async-%d", number), fmt.Sprintf("oneway-%d", number))
	}
	answered.Wait()
	var batch []*primitive.Message
	for number := 0; number < 10; number++ {
		made := message("normal", fmt.Sprintf("batch-%d", number))
		made.WithKeys([]string{fmt.Sprintf("k%d", number)})
		batch = append(batch, made)
		wanted = append(wanted, fmt.Sprintf("batch-%d", number))
	}
	send(client, batch...)
	long := strings.Repeat("0123456789", 50_000)
	send(client, message("normal", long))
	wanted = append(wanted, long)

	came := receiving(nil)
	pushed := pushing("normal", "normal", everything, came)
	for _, each := range came.expect(wanted...) {
		kind, number, _ := strings.Cut(string(each.Body), "-")
		switch kind {
		case "one":
			body := kind + "-" + number
			expect(each.GetTags() == "go" && each.GetKeys() == "a"+body+" b"+body, each)
			expect(each.GetProperty("number") == "№ "+number, each)
			expect(each.MsgId == ids[body], each)
			expect(each.ReconsumeTimes == 0, each)
		case "batch":
			expect(each.GetKeys() == "k"+number, each)
		case long:
			expect(bytes.Equal(each.Body, []byte(long)), len(each.Body))
		}
	}
	check(pushed.Shutdown())
	check(client.Shutdown())
}

// ordered has four keys. One message is refused once: those behind it wait.
func ordered([]string) {
	client := producing("ordered", producer.WithQueueSelector(producer.NewHashQueueSelector()))
	for number := 0; number < 40; number++ {
		key := strconv.Itoa(number % 4)
		send(client, message("ordered", fmt.Sprintf("%s-%d", key, number/4)).WithShardingKey(key))
	}
	refused := 0
	came := receiving(func(context context.Context, each *primitive.MessageExt) consumer.ConsumeResult {
		if string(each.Body) == "2-5" && refused == 0 {
			refused++
			orderly, _ := primitive.GetOrderlyCtx(context)
			orderly.SuspendCurrentQueueTimeMillis = 200
			return consumer.SuspendCurrentQueueAMoment
		}
		return consumer.ConsumeSuccess
	})
	pushed := pushing("ordered", "ordered", everything, came, consumer.WithConsumerOrder(true))
	following := map[string]int{}
	queues := map[string]int{}
	for _, each := range came.take(41) {
		key, number, _ := strings.Cut(string(each.Body), "-")
		if following[key] == 0 {
			queues[key] = each.Queue.QueueId
		}
		expect(queues[key] == each.Queue.QueueId, each)
		if key == "2" && number == "5" && refused == 1 {
			refused++ // it comes again before the next one of its key
			continue
		}
		expect(number == strconv.Itoa(following[key]), each)
		following[key]++
	}
	expect(refused == 2, refused)
	check(pushed.Shutdown())
	check(client.Shutdown())
}

// delayed by level; the client has no methods for milliseconds and times.
func delayed([]string) {
	client := producing("delayed")
	send(client, message("delayed", "now"))
	begun := time.Now()
	send(client, message("delayed", "level").WithDelayTimeLevel(1))
	least := map[string]time.Duration{"now": 0, "level": time.Second}
	for name, delay := range map[string]time.Duration{"TIMER_DELAY_MS": 1500 * time.Millisecond, "TIMER_DELIVER_MS": 2500 * time.Millisecond} {
		made := message("delayed", name)
		value := delay.Milliseconds()
		if name == "TIMER_DELIVER_MS" {
			value += begun.UnixMilli()
		}
		made.WithProperty(name, strconv.FormatInt(value, 10))
		send(client, made)
		least[name] = delay
	}
	came := receiving(nil)
	pushed := pushing("delayed", "delayed", everything, came)
	for range 4 {
		body := string(came.next().Body)
		after := time.Since(begun)
		expect(after >= least[body], fmt.Sprintf("%s came after %s", body, after))
		delete(least, body)
	}
	expect(len(least) == 0, least)
	check(pushed.Shutdown())
	check(client.Shutdown())
}

// requests get replies; the client's function that makes one forgets the body.
func requests([]string) {
	asking := producing("asking")
	send(asking, message("requests", "creates the topic"))
	replying := producing("replying")
	came := receiving(func(_ context.Context, each *primitive.MessageExt) consumer.ConsumeResult {
		if string(each.Body) == "creates the topic" {
			return consumer.ConsumeSuccess
		}
		reply, err := consumer.CreateReplyMessage(each, nil)
		check(err)
		reply.Body = append([]byte("reply to "), each.Body...)
		// The broker knows the client that asks only after its first heartbeat, a second after it has started.
		for late := time.Now().Add(deadline); ; time.Sleep(100 * time.Millisecond) {
			if _, err = replying.SendSync(context.Background(), reply); err == nil {
				break
			}
			expect(time.Now().Before(late), err)
		}
		return consumer.ConsumeSuccess
	})
	pushed := pushing("requests", "requests", everything, came)
	came.expect("creates the topic")
	reply, err := asking.Request(context.Background(), deadline, message("requests", "question"))
	check(err)
	expect(string(reply.Body) == "reply to question", reply)
	came.expect("question")
	check(pushed.Shutdown())
	check(replying.Shutdown())
	check(asking.Shutdown())
}

// refused is for a login that may not send: it prints why.
func refused([]string) {
	client := producing("refused", producer.WithRetry(0))
	_, err := client.SendSync(context.Background(), message("refused", "body"))
	expect(err != nil, "the message was sent")
	fmt.Println(err)
	check(client.Shutdown())
}
