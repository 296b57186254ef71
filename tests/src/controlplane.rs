//! A real etcd, kube-apiserver, controller manager, scheduler and KWOK, on free ports.
