package main

import (
	"context"
	"os"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// decisions are those of a producer: local ones by the first word of a body, and those of checks by its last word.
type decisions struct {
	local func(*primitive.Message) primitive.LocalTransactionState
	asked sync.Map
}

func (d *decisions) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return d.local(message)
}

func (d *decisions) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	body := string(message.Body)
	expect(message.GetProperty("body") == body, message)
	d.asked.Store(body, true)
	if strings.HasSuffix(body, "later-rollback") {
		return primitive.RollbackMessageState
	}
	return primitive.CommitMessageState
}

func (d *decisions) wasAsked(body string) bool {
	_, asked := d.asked.Load(body)
	return asked
}

func byFirstWord(message *primitive.Message) primitive.LocalTransactionState {
	switch strings.Split(string(message.Body), "-")[0] {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	default:
		return primitive.UnknowState
	}
}

func half(topic string, body string) *primitive.Message {
	made := message(topic, body).WithKeys([]string{"key of " + body})
	made.WithProperty("body", body)
	made.WithProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", map[bool]string{true: "5", false: "1"}[body == "orphan"])
	return made
}

func transactions([]string) {
	decisions := &decisions{local: byFirstWord}
	client := transactional("transactions", decisions)
	for _, body := range []string{
		"commit-1", "rollback-1", "unknown-later-rollback", "unknown-later-commit", "commit-2", "rollback-2",
	} {
		sent, err := client.SendMessageInTransaction(context.Background(), half("transactions", body))
		check(err)
		expect(sent.Status == primitive.SendOK && sent.State == byFirstWord(message("", body)), sent)
	}
	came := receiving(nil)
	pushed := pushing("transactions", "transactions", everything, came)
	for _, each := range came.expect("commit-1", "commit-2", "unknown-later-commit") {
		expect(each.GetKeys() == "key of "+string(each.Body) && each.GetProperty("body") == string(each.Body), each)
	}
	expect(decisions.wasAsked("unknown-later-commit"), "nobody was asked")
	check(pushed.Shutdown())
	check(client.Shutdown())
}

// crash does not come back: the process ends after the half message and before its end.
func crash([]string) {
	client := transactional("crash", &decisions{local: func(*primitive.Message) primitive.LocalTransactionState {
		os.Exit(7)
		return primitive.UnknowState
	}})
	_, err := client.SendMessageInTransaction(context.Background(), half("crash", "orphan"))
	check(err)
}

// takeover is another producer of the group: it is asked about what the crashed one has left.
func takeover([]string) {
	decisions := &decisions{local: byFirstWord}
	client := transactional("crash", decisions)
	_, err := client.SendMessageInTransaction(context.Background(), half("crash", "commit-own"))
	check(err)
	came := receiving(nil)
	pushed := pushing("takers", "crash", everything, came)
	came.expect("commit-own", "orphan")
	expect(decisions.wasAsked("orphan"), "nobody was asked")
	check(pushed.Shutdown())
	check(client.Shutdown())
}
