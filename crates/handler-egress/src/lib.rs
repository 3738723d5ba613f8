//! The egress filter: proxy, allow-list, TLS interception, secret injection.
