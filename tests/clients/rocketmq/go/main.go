// What RocketMQ's client for the remoting protocol in Go does: ADDRESS STEP..., all steps at once, because they wait most of the
// time. Each has topics and groups of its own, and prints a line when it is done. ACCESS_KEY and SECRET are a login.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const deadline = 90 * time.Second

var everything = consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}

var steps = map[string]func(arguments []string){
	"normal":       normal,
	"ordered":      ordered,
	"delayed":      delayed,
	"transactions": transactions,
	"crash":        crash,
	"takeover":     takeover,
	"requests":     requests,
	"filters":      filters,
	"broadcasting": broadcasting,
	"pulls":        pulls,
	"retries":      retries,
	"replay":       replay,
	"refused":      refused,
	"write":        write,
	"read":         read,
}

func main() {
	rlog.SetLogLevel("fatal")
	var running sync.WaitGroup
	for _, argument := range os.Args[2:] {
		words := strings.Split(argument, ":")
		running.Add(1)
		go func() {
			defer running.Done()
			steps[words[0]](words[1:])
			fmt.Println("done " + argument)
		}()
	}
	running.Wait()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(holds bool, found any) {
	if !holds {
		panic(fmt.Sprint(found))
	}
}

var clients atomic.Int32

// instance is a name of its own for each client: those that share one share connections, too, and are closed together.
func instance() string {
	return fmt.Sprintf("%d-%d", os.Getpid(), clients.Add(1))
}

func servers() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{os.Args[1]})
}

func login() primitive.Credentials {
	return primitive.Credentials{AccessKey: os.Getenv("ACCESS_KEY"), SecretKey: os.Getenv("SECRET")}
}

func producerOptions(group string) []producer.Option {
	return []producer.Option{
		producer.WithGroupName(group),
		producer.WithInstanceName(instance()),
		producer.WithNsResolver(servers()),
		producer.WithCredentials(login()),
	}
}

func producing(group string, options ...producer.Option) rocketmq.Producer {
	client, err := rocketmq.NewProducer(append(producerOptions(group), options...)...)
	check(err)
	check(client.Start())
	return client
}

func transactional(group string, listener primitive.TransactionListener) rocketmq.TransactionProducer {
	client, err := rocketmq.NewTransactionProducer(listener, producerOptions(group)...)
	check(err)
	check(client.Start())
	return client
}

func consumerOptions(group string) []consumer.Option {
	return []consumer.Option{
		consumer.WithGroupName(group),
		consumer.WithInstance(instance()),
		consumer.WithNsResolver(servers()),
		consumer.WithCredentials(login()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
}

func pushing(
	group string, topic string, selector consumer.MessageSelector, came *received, options ...consumer.Option,
) rocketmq.PushConsumer {
	client, err := rocketmq.NewPushConsumer(append(consumerOptions(group), options...)...)
	check(err)
	check(client.Subscribe(topic, selector, came.listen))
	check(client.Start())
	return client
}

// received is what a listener gets; answer says what it makes of a message, success if there is none.
type received struct {
	messages chan *primitive.MessageExt
	answer   answer
}

func receiving(listener answer) *received {
	return &received{messages: make(chan *primitive.MessageExt, 1000), answer: listener}
}

func (r *received) next() *primitive.MessageExt {
	select {
	case message := <-r.messages:
		return message
	case <-time.After(deadline):
		panic("a message has not come")
	}
}

func (r *received) take(count int) []*primitive.MessageExt {
	var found []*primitive.MessageExt
	for len(found) < count {
		found = append(found, r.next())
	}
	return found
}

// expect takes as many messages as are wanted: those, in any order.
func (r *received) expect(wanted ...string) []*primitive.MessageExt {
	found := r.take(len(wanted))
	sort.Strings(wanted)
	texts := bodies(found)
	sort.Strings(texts)
	expect(fmt.Sprint(texts) == fmt.Sprint(wanted), fmt.Sprintf("%v and not %v", texts, wanted))
	return found
}

func bodies(messages []*primitive.MessageExt) []string {
	var found []string
	for _, each := range messages {
		found = append(found, string(each.Body))
	}
	return found
}

func numbered(word string, first int, end int) []string {
	var found []string
	for number := first; number < end; number++ {
		found = append(found, fmt.Sprintf("%s%d", word, number))
	}
	return found
}
