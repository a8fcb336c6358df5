//! Proxies for everything: nginx, HAProxy and Envoy, set up as one would for streams of tokens.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::subject::{ATTEMPTS, Setting};

/// Connections each may have open.
const CONNECTIONS: u32 = 16_384;

/// Finds a program, in the folders for the system's own ones, too.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders
        .map(|folder| folder.join(name))
        .find(|it| it.is_file())
}

/// The version a program says, which is the first word of its own with a number.
pub fn version(name: &str) -> Option<String> {
    let output = Command::new(program(name)?).arg("-v").output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).ok()?;
    let mut words = text.split([' ', '/', '\n']);
    let version = words.find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    version.map(str::to_owned)
}

fn installed(name: &str) -> Result<Command, String> {
    let program = program(name).ok_or_else(|| format!("apt-get install {name}"))?;
    Ok(Command::new(program))
}

/// nginx.
pub fn nginx(setting: &Setting<'_>) -> Result<Command, String> {
    let mut command = installed("nginx")?;
    let dir = setting.dir.display();
    let mut servers = String::new();
    for engine in setting.engines {
        // Without `max_fails` a refused attempt would take the engine out for ten seconds.
        let _ = writeln!(servers, "    server {engine} max_fails=0;");
    }
    let mut temporary = String::new();
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(temporary, "  {kind}_temp_path {dir}/{kind};");
    }
    let text = format!(
        "user root;
daemon off;
worker_processes 1;
pid {dir}/nginx.pid;
events {{ worker_connections {CONNECTIONS}; }}
http {{
  access_log off;
{temporary}  client_max_body_size 64m;
  client_body_buffer_size 256k;
  keepalive_requests 1000000000;
  upstream engines {{
{servers}    keepalive 512;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_buffering off;
      proxy_next_upstream error timeout http_503 non_idempotent;
    }}
  }}
}}
",
        port = setting.port,
    );
    let file = setting.file("nginx.conf", &text);
    command
        .arg("-c")
        .arg(file)
        .arg("-p")
        .arg(setting.dir)
        .args(["-e", "stderr"]);
    Ok(command)
}

/// HAProxy.
pub fn haproxy(setting: &Setting<'_>) -> Result<Command, String> {
    let mut command = installed("haproxy")?;
    let mut servers = String::new();
    for (n, engine) in setting.engines.iter().enumerate() {
        let _ = writeln!(servers, "  server e{n} {engine}");
    }
    let text = format!(
        "global
  nbthread 1
  maxconn {most}
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  option http-no-delay
  option forwardfor
  option redispatch 1
  http-reuse always
  retries {retries}
  retry-on conn-failure empty-response 503
frontend clients
  bind 127.0.0.1:{port} backlog 4096
  default_backend engines
backend engines
  balance roundrobin
{servers}",
        most = CONNECTIONS / 2,
        retries = ATTEMPTS - 1,
        port = setting.port,
    );
    let file = setting.file("haproxy.cfg", &text);
    command.arg("-db").arg("-f").arg(file);
    Ok(command)
}

/// Envoy, whose program a Python package brings along.
pub fn envoy(setting: &Setting<'_>) -> Result<Command, String> {
    let inside = "site-packages/envoy/_bin/envoy";
    let packaged = python_libraries(&setting.tools.peers)
        .map(|folder| folder.join(inside))
        .find(|it| it.is_file());
    let program = packaged
        .or_else(|| program("envoy"))
        .ok_or("make compare-peers")?;
    let mut endpoints = String::new();
    for engine in setting.engines {
        let _ = writeln!(
            endpoints,
            "        - endpoint: {{address: {{socket_address: {{address: {}, port_value: {}}}}}}}",
            engine.ip(),
            engine.port()
        );
    }
    let text = format!(
        "static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    tcp_backlog_size: 4096
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: clients
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
          route_config:
            virtual_hosts:
            - name: all
              domains: ['*']
              routes:
              - match: {{prefix: /}}
                route:
                  cluster: engines
                  timeout: 0s
                  retry_policy:
                    retry_on: connect-failure,reset,retriable-status-codes
                    retriable_status_codes: [503]
                    num_retries: {retries}
                    retry_back_off: {{base_interval: 0.001s, max_interval: 0.001s}}
  clusters:
  - name: engines
    type: STATIC
    connect_timeout: 5s
    lb_policy: ROUND_ROBIN
    circuit_breakers:
      thresholds:
      - {{max_connections: {most}, max_pending_requests: {most}, max_requests: {most}, max_retries: {most}}}
    load_assignment:
      cluster_name: engines
      endpoints:
      - lb_endpoints:
{endpoints}",
        port = setting.port,
        retries = ATTEMPTS - 1,
        most = CONNECTIONS,
    );
    let file = setting.file("envoy.yaml", &text);
    let mut command = Command::new(program);
    command
        .args([
            "--concurrency",
            "1",
            "--disable-hot-restart",
            "-l",
            "warning",
            "-c",
        ])
        .arg(file);
    Ok(command)
}

/// The folders that may hold the packages of a Python environment.
fn python_libraries(environment: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(environment.join("lib"));
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}
