// SPDX-License-Identifier: Apache-2.0

// Command cluster is a Kubernetes of one machine in one program, which is whichever of the
// programs its first argument or the name of the file says:
//
//	etcd DIRECTORY             keeps its data in DIRECTORY, on 127.0.0.1:2379
//	kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func listeners(address string) []url.URL {
	return []url.URL{{Scheme: "http", Host: address}}
}

// serveEtcd returns when etcd fails.
func serveEtcd(directory string) error {
	config := embed.NewConfig()
	config.Dir = directory
	config.LogLevel = "warn"
	config.UnsafeNoFsync = true // the cluster lives as long as its test
	config.ListenClientUrls = listeners("127.0.0.1:2379")
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ListenPeerUrls = listeners("127.0.0.1:2380")
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	return <-server.Err()
}

func newEtcdCommand() *cobra.Command {
	return &cobra.Command{
		Use:  "etcd DIRECTORY",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, words []string) error { return serveEtcd(words[0]) },
	}
}

func main() {
	programs := map[string]func() *cobra.Command{
		"etcd":                    newEtcdCommand,
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
	}
	command, isProgram := programs[filepath.Base(os.Args[0])]
	if !isProgram && len(os.Args) > 1 {
		command, isProgram = programs[os.Args[1]]
		os.Args = os.Args[1:]
	}
	if !isProgram {
		fmt.Fprintln(os.Stderr, "cluster: give the name of a program, for example kubectl")
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
