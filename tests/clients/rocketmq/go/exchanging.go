package main

import (
	"fmt"
	"strconv"
	"strings"
)

// write sends what clients of other protocols read.
func write(arguments []string) {
	client := producing("writer")
	for number := range 3 {
		made := message(arguments[0], fmt.Sprintf("straße %d", number))
		made.WithTag(fmt.Sprintf("tag%d", number)).WithKeys([]string{fmt.Sprintf("key%d", number)})
		made.WithProperty("tenant", "blåu")
		send(client, made)
	}
	check(client.Shutdown())
}

// read prints a line for each message: its body, and its keys, tag and tenant if it has them.
func read(arguments []string) {
	count, err := strconv.Atoi(arguments[1])
	check(err)
	came := receiving(nil)
	pushed := pushing("reader", arguments[0], everything, came)
	for _, each := range came.take(count) {
		var shown []string
		for _, name := range []string{"KEYS", "TAGS", "tenant"} {
			if value := each.GetProperty(name); value != "" {
				shown = append(shown, name+"="+value)
			}
		}
		fmt.Printf("%s {%s}\n", each.Body, strings.Join(shown, ", "))
	}
	check(pushed.Shutdown())
}
