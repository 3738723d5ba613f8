//! What of the host a sandbox sees, and the environment it starts with: tables only.

/// Host paths shown read-only at the same path; a missing one is skipped.
pub(crate) const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
];

/// Of `/etc`, only what programs need to run and nothing that names people, hosts or keys:
/// no shadow, sudoers, ssh, hosts, resolv.conf, machine-id, crontabs, krb5.
pub(crate) const SYSTEM_ETC: &[&str] = &[
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "debian_version",
    "fonts",
    "inputrc",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "java-25-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "lsb-release",
    "magic",
    "mime.types",
    "os-release",
    "perl",
    "pki",
    "profile.d",
    "protocols",
    "python3",
    "python3.10",
    "python3.11",
    "python3.12",
    "python3.13",
    "python3.14",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
];

/// Targets that a mount must not have, nor lie below: they are the sandbox's own.
pub(crate) const OWN_TREES: &[&str] = &["/proc", "/dev", "/sys", "/run/handler"];

/// Targets that a mount must not have, though it may lie below.
pub(crate) const OWN_FOLDERS: &[&str] = &[
    "/",
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/run",
    "/sbin",
    "/tmp",
    "/usr",
    "/var",
];

/// Where certificate authorities of the system are kept, by distribution; the first that exists counts.
pub(crate) const CA_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Variables that point programs to the certificate bundle.
pub(crate) const CA_VARIABLES: &[&str] = &[
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "NODE_EXTRA_CA_CERTS",
    // npm does not look at Node's variable where a system's own npmrc names a file.
    "NPM_CONFIG_CAFILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
];

/// Variables that point programs to the egress filter (lower-case forms are added).
pub(crate) const PROXY_VARIABLES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY"];

/// Makes Node's own `fetch` and `http` look at the variables above (Node 24, and 22 from 22.21).
pub(crate) const NODE_PROXY: (&str, &str) = ("NODE_USE_ENV_PROXY", "1");

/// What programs must not send to the filter.
pub(crate) const NO_PROXY: &str = "localhost,127.0.0.1,::1";

/// Where programs are looked for, after `~/.local/bin`.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Port on the sandbox's loopback that leads to the egress filter.
pub(crate) const EGRESS_PORT: u16 = 3128;
