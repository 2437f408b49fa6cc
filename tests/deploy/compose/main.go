// What `docker compose config` shows of a compose file, by the same library: compose-project FILE ENV_FILE
// writes the project as JSON, with all variables, anchors and paths resolved. Exit code 1 and a line where it can't be
// loaded.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	if err := show(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func show(file, environment string) error {
	options, err := cli.NewProjectOptions(
		[]string{file},
		cli.WithEnvFiles(environment),
		cli.WithDotEnv,
		cli.WithInterpolation(true),
		cli.WithResolvedPaths(true),
		cli.WithNormalization(true),
		cli.WithConsistency(true),
	)
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	written, err := project.MarshalJSON()
	if err != nil {
		return err
	}
	fmt.Println(string(written))
	return nil
}
