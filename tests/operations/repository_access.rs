//! Who may use the repository API: the settings that switch it off or move it, and requests from web pages of other sites.

use mlserver::types::protobuf::messages::RepositoryIndexRequest;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::grpc::inference_client;
use crate::support::{Client, Folder, TestServer, announced_address};

const INDEX: &str = "/v2/repository/index";
const LOAD: &str = "/v2/repository/models/echo/load";
const UNLOAD: &str = "/v2/repository/models/echo/unload";

fn echo(settings: &Value) -> TestServer {
    TestServer::start(Folder::new().with_identity("echo").settings(settings))
}

/// Calls the repository API over gRPC.
async fn grpc_index(server: &TestServer) -> Result<usize, (Code, String)> {
    let request = RepositoryIndexRequest { repository_name: String::new(), ready: false };
    let answer = inference_client(server.grpc).await.repository_index(request).await;
    answer.map(|answer| answer.into_inner().models.len()).map_err(|s| (s.code(), s.message().to_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repository_api_can_be_switched_off() {
    let server = echo(&json!({"repository_api": "off"}));
    let message = "the repository API is off (setting `repository_api`)";
    for path in [INDEX, LOAD, UNLOAD] {
        assert_eq!(server.post(path, "{}").error(404), message);
    }
    assert_eq!(grpc_index(&server).await, Err((Code::Unimplemented, message.to_owned())));
    server.get("/v2/models/echo").ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_port_alone_serves_the_repository_api() {
    let server = echo(&json!({"admin_port": 0}));
    let message = "the repository API is only served on the port of the setting `admin_port`";
    for path in [INDEX, LOAD, UNLOAD] {
        assert_eq!(server.post(path, "{}").error(404), message);
    }
    assert_eq!(grpc_index(&server).await, Err((Code::Unimplemented, message.to_owned())));

    let line = server.wait_for_log("Admin server running on ");
    let admin = Client::new(announced_address(&(line + "\n"), "Admin").unwrap());
    assert_eq!(admin.post(INDEX, "{}").ok()[0]["name"], "echo");
    assert_eq!(admin.get("/v2/health/ready").status, 200);
    assert_eq!(admin.post(UNLOAD, "").status, 200);
    server.get("/v2/models/echo").error(404);
    assert_eq!(admin.post(LOAD, "").status, 200);
    server.get("/v2/models/echo").ok();
    for path in ["/v2", "/v2/models/echo", "/v2/docs", "/metrics"] {
        admin.get(path).error(404);
    }
}

#[test]
fn pages_of_other_sites_cannot_change_models() {
    let cors = json!({"allow_origins": ["https://console"]});
    let server = echo(&json!({"cors_settings": cors}));
    let own = format!("http://{}", server.http);
    let json = ("content-type", "application/json");
    for origin in ["http://evil", "null"] {
        let error = server.post_with(UNLOAD, &[("origin", origin), json], "{}").error(403);
        assert!(error.contains(&format!("`{origin}`")), "{error}");
    }
    for form in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        server.post_with(UNLOAD, &[("content-type", form)], "").error(415);
    }
    // The server listens on a loopback address, to which any site may point its name.
    let error = server.post_with(UNLOAD, &[("host", "evil:8080"), json], "{}").error(403);
    assert!(error.contains("`evil:8080`"), "{error}");
    server.get("/v2/models/echo").ok();
    for origin in [own.as_str(), "https://console"] {
        assert_eq!(server.post_with(LOAD, &[("origin", origin), json], "{}").status, 200);
    }
    let host = format!("localhost:{}", server.http.port());
    assert_eq!(server.post_with(LOAD, &[("host", &host)], "").status, 200);
}
