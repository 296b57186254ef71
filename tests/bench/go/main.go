// The peer in Go: client-go's informer of Pods, driven and measured as the subjects in Rust are; as `peer encode`, the
// rig's encoder: Pods as JSON lines in, protobuf out, by Kubernetes' own types; and as `peer queue N`, client-go's
// workqueue with a number of keys.
//
// The words on standard input and output are those of src/subject/control.rs.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "encode":
		err = encode()
	case len(os.Args) == 3 && os.Args[1] == "queue":
		err = queue(os.Args[2])
	default:
		err = follow()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

// nanotime reads the clock that all processes of the machine share; Go's time.Now does not have its value.
func nanotime() int64 {
	var time unix.Timespec
	// The clock exists on Linux.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &time)
	return time.Nano()
}

// control reports the state of the cache to the program that measures.
type control struct {
	target    atomic.Uint64
	recording atomic.Bool
	mutex     sync.Mutex
	times     [][2]uint64
}

func (c *control) seen(text string) {
	revision, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return
	}
	if c.recording.Load() {
		c.mutex.Lock()
		c.times = append(c.times, [2]uint64{revision, uint64(nanotime())})
		c.mutex.Unlock()
	}
	if target := c.target.Load(); target != 0 && revision >= target && c.target.CompareAndSwap(target, 0) {
		fmt.Println("reached", revision, nanotime())
	}
}

func (c *control) write(path string) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	writer := bufio.NewWriter(file)
	for _, pair := range c.times {
		fmt.Fprintln(writer, pair[0], pair[1])
	}
	c.times = nil
	return writer.Flush()
}

func follow() error {
	url := flag.String("url", "", "the API server")
	ca := flag.String("ca", "", "the certificate to trust, as PEM")
	content := flag.String("content", "json", "json or protobuf")
	transform := flag.Bool("transform", false, "drop what controllers rarely read before it is stored")
	flag.Parse()

	config := &rest.Config{Host: *url, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAFile: *ca}}
	if *content == "protobuf" {
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	} else {
		config.ContentType = runtime.ContentTypeJSON
		config.AcceptContentTypes = runtime.ContentTypeJSON
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var options []informers.SharedInformerOption
	if *transform {
		options = append(options, informers.WithTransform(trim))
	}
	pods := informers.NewSharedInformerFactoryWithOptions(client, 0, options...).Core().V1().Pods()
	informer := pods.Informer()
	said := &control{}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	changed := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			queue.Add(key)
		}
		if pod, ok := object.(*corev1.Pod); ok {
			said.seen(pod.ResourceVersion)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, object any) { changed(object) },
		DeleteFunc: changed,
	}); err != nil {
		return err
	}
	go func() {
		for {
			key, closed := queue.Get()
			if closed {
				return
			}
			queue.Forget(key)
			queue.Done(key)
		}
	}()

	stop := make(chan struct{})
	lines := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	for lines.Scan() {
		word, argument, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "go":
			begun := nanotime()
			go informer.Run(stop)
			go func() {
				for !informer.HasSynced() {
					time.Sleep(time.Millisecond)
				}
				fmt.Println("synced", begun, nanotime(), len(informer.GetStore().ListKeys()))
			}()
		case "until":
			target, err := strconv.ParseUint(argument, 10, 64)
			if err != nil {
				return err
			}
			said.target.Store(target)
			fmt.Println("ok")
		case "record":
			said.recording.Store(true)
			fmt.Println("ok")
		case "times":
			said.recording.Store(false)
			if err := said.write(argument); err != nil {
				return err
			}
			fmt.Println("ok")
		case "reads":
			store := informer.GetStore()
			keys := store.ListKeys()
			snapshot := median(20, func(int) { _ = store.List() })
			get := median(10_000, func(at int) { _, _, _ = store.GetByKey(keys[at%len(keys)]) })
			fmt.Println("reads", snapshot, get)
		case "quit":
			return nil
		}
	}
	return lines.Err()
}

func median(times int, read func(int)) int64 {
	took := make([]int64, times)
	for at := range took {
		begun := nanotime()
		read(at * 7919)
		took[at] = nanotime() - begun
	}
	sort.Slice(took, func(a, b int) bool { return took[a] < took[b] })
	return took[times/2]
}

// trim drops what most controllers never read, as tuned operators do.
func trim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	delete(pod.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
	pod.Spec.Volumes = nil
	pod.Spec.Affinity = nil
	pod.Spec.TopologySpreadConstraints = nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for at := range containers {
			container := &containers[at]
			container.Command, container.Args, container.Env, container.EnvFrom = nil, nil, nil, nil
			container.VolumeMounts, container.Lifecycle, container.SecurityContext = nil, nil, nil
			container.LivenessProbe, container.ReadinessProbe, container.StartupProbe = nil, nil, nil
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for at := range statuses {
			status := &statuses[at]
			status.VolumeMounts, status.Resources, status.AllocatedResources, status.User = nil, nil, nil, nil
		}
	}
	return pod, nil
}

func encode() error {
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriterSize(os.Stdout, 1<<20)
	serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	for {
		line, err := input.ReadBytes('\n')
		if len(line) == 0 {
			return output.Flush()
		}
		if err != nil {
			return err
		}
		var pod corev1.Pod
		if err := json.Unmarshal(line, &pod); err != nil {
			return err
		}
		pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		encoded, err := runtime.Encode(serializer, &pod)
		if err != nil {
			return err
		}
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(len(encoded)))
		if _, err := output.Write(length[:]); err != nil {
			return err
		}
		if _, err := output.Write(encoded); err != nil {
			return err
		}
		// The program that waits for this frame waits for nothing else.
		if input.Buffered() == 0 {
			if err := output.Flush(); err != nil {
				return err
			}
		}
	}
}
