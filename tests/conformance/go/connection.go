package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// connection holds the flags that all modes share.
type connection struct {
	bootstrap, clientID, rack, maxVersion string
	saslMechanism, saslUser, saslPassword string
	tlsCA, tlsCertificate, tlsKey         string
	tls                                   bool
}

func connectionFlags(flags *flag.FlagSet) *connection {
	c := &connection{}
	flags.StringVar(&c.bootstrap, "bootstrap", "", "`host:port`, several with commas between")
	flags.StringVar(&c.clientID, "client-id", "kafka-go-client", "client.id")
	flags.StringVar(&c.rack, "rack", "", "client.rack; none where empty")
	flags.StringVar(&c.maxVersion, "max-version", "", "behave as a client of this Kafka release, such as 0.11.0 or 2.1")
	flags.StringVar(&c.saslMechanism, "sasl-mechanism", "", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; no SASL where empty")
	flags.StringVar(&c.saslUser, "sasl-user", "", "user name")
	flags.StringVar(&c.saslPassword, "sasl-password", "", "password")
	flags.BoolVar(&c.tls, "tls", false, "speak TLS")
	flags.StringVar(&c.tlsCA, "tls-ca", "", "`file` of certificates to trust (PEM); the system's where empty")
	flags.StringVar(&c.tlsCertificate, "tls-certificate", "", "`file` of the client's own certificate (PEM)")
	flags.StringVar(&c.tlsKey, "tls-key", "", "`file` of its key (PEM)")
	return c
}

// options are those of the library for the flags.
func (c *connection) options() ([]kgo.Opt, error) {
	if c.bootstrap == "" {
		return nil, errors.New("-bootstrap is missing")
	}
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(c.bootstrap, ",")...), kgo.ClientID(c.clientID)}
	if c.rack != "" {
		options = append(options, kgo.Rack(c.rack))
	}
	if c.maxVersion != "" {
		versions := kversion.FromString("v" + strings.TrimPrefix(c.maxVersion, "v"))
		if versions == nil {
			return nil, fmt.Errorf("-max-version %s is not one of %s", c.maxVersion, kversion.VersionStrings())
		}
		options = append(options, kgo.MaxVersions(versions))
	}
	mechanism, err := c.mechanism()
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	if c.tls {
		config, err := c.tlsConfig()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	return options, nil
}

func (c *connection) mechanism() (sasl.Mechanism, error) {
	switch c.saslMechanism {
	case "":
		return nil, nil
	case "PLAIN":
		return plain.Auth{User: c.saslUser, Pass: c.saslPassword}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: c.saslUser, Pass: c.saslPassword}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: c.saslUser, Pass: c.saslPassword}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("-sasl-mechanism %s is not known", c.saslMechanism)
}

func (c *connection) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.tlsCA != "" {
		text, err := os.ReadFile(c.tlsCA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate", c.tlsCA)
		}
	}
	if c.tlsCertificate != "" {
		pair, err := tls.LoadX509KeyPair(c.tlsCertificate, c.tlsKey)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// newClient makes a client of the flags and of further options.
func (c *connection) newClient(more ...kgo.Opt) (*kgo.Client, error) {
	options, err := c.options()
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(options, more...)...)
}
