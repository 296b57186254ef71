package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// operations of each kind beyond the first that puts all keys in, as in src/queue/mod.rs.
const operations = 200_000

// queue measures client-go's workqueue as controllers use it, and prints the figures as JSON.
func queue(argument string) error {
	count, err := strconv.Atoi(argument)
	if err != nil {
		return err
	}
	keys := make([]types.NamespacedName, count)
	for at := range keys {
		keys[at] = types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("cart-%07d-5d9c7b8f6-x2x%d", at, at%10)}
	}
	debug.FreeOSMemory()
	before, err := resident()
	if err != nil {
		return err
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	figures := map[string]float64{}
	figures["add"] = perSecond(count, func() {
		for _, key := range keys {
			queue.Add(key)
		}
	})
	debug.FreeOSMemory()
	after, err := resident()
	if err != nil {
		return err
	}
	figures["bytes_per_key"] = max(0, float64(after-before)/float64(count))
	some := min(operations, count)
	figures["merge"] = perSecond(some, func() {
		for _, key := range keys[:some] {
			queue.Add(key)
		}
	})
	figures["cycle"] = perSecond(operations, func() {
		for range operations {
			key, _ := queue.Get()
			queue.Add(key)
			queue.Done(key)
		}
	})
	figures["take"] = perSecond(some, func() {
		for range some {
			key, _ := queue.Get()
			queue.Forget(key)
			queue.Done(key)
		}
	})
	return json.NewEncoder(os.Stdout).Encode(figures)
}

func perSecond(count int, work func()) float64 {
	begun := nanotime()
	work()
	return float64(count) / float64(nanotime()-begun) * 1e9
}

// resident returns resident memory in bytes.
func resident() (int64, error) {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(statm))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/self/statm: %q", statm)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * 4096, err
}
