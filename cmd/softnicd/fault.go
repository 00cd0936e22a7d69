package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/goccy/go-yaml"

	"github.com/softnic/softnicd/link/fault"
)

// faults reads the plan of what shall go wrong, which no daemon has unless it is asked for.
func (c *config) faults() (*fault.Plan, error) {
	if c.Fault == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.Fault)
	if err != nil {
		return nil, usage(fmt.Errorf("fault plan: %w", err))
	}
	var plan fault.Plan
	err = yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&plan)
	if err == nil {
		err = plan.Validate()
	}
	if err != nil {
		return nil, usage(fmt.Errorf("fault plan %s: %w", c.Fault, err))
	}
	return &plan, nil
}
