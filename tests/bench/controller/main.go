// The peer in Go of the benchmark of new Pods: one program of controller-runtime with a controller for each namespace,
// which labels Pods as the plugin workload-label does.
//
// Usage: controller [-leader-elect] WORKERS KUBECONFIG NAMESPACE...
//
// WORKERS is the number of reconciles that a controller has at a time, by default of controller-runtime 1. All
// controllers share the manager's cache of all Pods. The client sends as many requests as the controllers have:
// the API server, and not a rate of the client, is what limits it. With -leader-elect it is one of many operators: it
// holds a lease, and its cache has its own namespaces only.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllers "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

const label = "podium.dev/workload"

func main() {
	elect := flag.Bool("leader-elect", false, "hold a lease, and cache the own namespaces only")
	flag.Parse()
	if flag.NArg() < 3 {
		fmt.Fprintln(os.Stderr, "usage: controller [-leader-elect] WORKERS KUBECONFIG NAMESPACE...")
		os.Exit(2)
	}
	if err := run(*elect, flag.Arg(0), flag.Arg(1), flag.Args()[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

func run(elect bool, workers, kubeconfig string, namespaces []string) error {
	concurrent, err := strconv.Atoi(workers)
	if err != nil {
		return err
	}
	ctrl.SetLogger(klog.Background())
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	options := ctrl.Options{Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0"}
	if elect {
		options.LeaderElection, options.LeaderElectionID = true, "labeller-"+namespaces[0]
		options.LeaderElectionNamespace = namespaces[0]
		options.Cache.DefaultNamespaces = map[string]cache.Config{}
		for _, namespace := range namespaces {
			options.Cache.DefaultNamespaces[namespace] = cache.Config{}
		}
	}
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		own := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetNamespace() == namespace })
		controller := ctrl.NewControllerManagedBy(manager).Named(namespace).For(&corev1.Pod{}).WithEventFilter(own)
		controller = controller.WithOptions(controllers.Options{MaxConcurrentReconciles: concurrent})
		if err := controller.Complete(&labeller{manager.GetClient()}); err != nil {
			return err
		}
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

type labeller struct {
	client client.Client
}

func (labeller *labeller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	if err := labeller.client.Get(ctx, request.NamespacedName, &pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	controller := metav1.GetControllerOf(&pod)
	if pod.DeletionTimestamp != nil || controller == nil {
		return ctrl.Result{}, nil
	}
	workload := controller.Name
	if hash := pod.Labels["pod-template-hash"]; controller.Kind == "ReplicaSet" && hash != "" {
		workload = strings.TrimSuffix(workload, "-"+hash)
	}
	if pod.Labels[label] == workload {
		return ctrl.Result{}, nil
	}
	// The cache's objects are shared.
	before := pod.DeepCopy()
	pod.Labels[label] = workload
	return ctrl.Result{}, client.IgnoreNotFound(labeller.client.Patch(ctx, &pod, client.MergeFrom(before)))
}
