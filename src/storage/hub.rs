//! Repositories of Hugging Face's hub.

use std::ops::Range;

use http::header::{AUTHORIZATION, LINK};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::error::FetchError;
use super::part::Part;
use super::selection::{ContentHash, MAX_OBJECTS, RemoteFile, SelectionError, select, select_one, siblings};
use super::transport::{MAX_ANSWER, Transport, read_hex};
use super::web::{follow, read_part, success};
use crate::http_client::Url;
use crate::types::Secret;

/// What is written as it is in the path of a URL.
pub(super) const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
const REVISION: &AsciiSet = &PATH.add(b'/');
const MAIN: &str = "main";

/// Files of a repository.
#[derive(Debug)]
pub(super) struct Hub {
    pub transport: Transport,
    /// The hub's address, without a slash at its end.
    pub endpoint: String,
    pub token: Option<Secret>,
    pub repository: String,
    pub revision: Option<String>,
    pub key: String,
    /// The commit of the revision, once it is known: all requests name it, so that the files are of one state.
    pub commit: tokio::sync::OnceCell<String>,
}

/// The answer about a revision.
#[derive(Debug, Deserialize)]
struct Revision {
    sha: String,
}

/// An entry of a repository.
#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    oid: String,
    #[serde(default)]
    size: u64,
    lfs: Option<LargeFile>,
}

/// A file that is kept outside of Git.
#[derive(Debug, Deserialize)]
struct LargeFile {
    oid: String,
    size: u64,
}

impl Hub {
    pub(super) async fn list(&self) -> Result<Vec<RemoteFile>, FetchError> {
        let commit = self.commit().await?;
        let mut next = Some(self.url(&format!("/api/models/{}/tree/{commit}?recursive=true", self.repository))?);
        let mut objects = Vec::new();
        while let Some(url) = next {
            let (headers, body) = self.get(&url).await?;
            let entries: Vec<Entry> = read(&body)?;
            objects.extend(entries.into_iter().filter(|entry| entry.kind == "file").map(remote_file));
            if objects.len() > 2 * MAX_OBJECTS {
                return Err(SelectionError::TooMany.into());
            }
            next = next_page(&headers).and_then(|link| url.join(link).ok());
            // The token goes to the hub only.
            if next.as_ref().is_some_and(|next| next.origin() != url.origin()) {
                return Err(FetchError::Hub { reason: "the next page of the list is on another server".to_owned() });
            }
        }
        if let Some(index) = objects.iter().position(|object| object.key == self.key) {
            return Ok(select_one(objects.swap_remove(index))?);
        }
        let keys: Vec<_> = objects.iter().map(|object| object.key.clone()).collect();
        match select(&self.key, objects) {
            Err(SelectionError::Nothing { key, .. }) => {
                let siblings = siblings(&key, &keys);
                Err(SelectionError::Nothing { key, siblings }.into())
            }
            selected => Ok(selected?),
        }
    }

    pub(super) async fn read(&self, file: &RemoteFile, range: Option<Range<u64>>) -> Result<Part, FetchError> {
        let commit = self.commit().await?;
        let key = utf8_percent_encode(&file.key, PATH);
        let url = self.url(&format!("/{}/resolve/{commit}/{key}", self.repository))?;
        // A commit does not change, and the servers of large files have other tags.
        let file = RemoteFile { etag: None, ..file.clone() };
        read_part(&self.transport, &url, &self.headers()?, &file, range).await
    }

    async fn commit(&self) -> Result<&str, FetchError> {
        let find = async || {
            let revision = utf8_percent_encode(self.revision.as_deref().unwrap_or(MAIN), REVISION);
            let url = self.url(&format!("/api/models/{}/revision/{revision}", self.repository))?;
            let Revision { sha } = read(&self.get(&url).await?.1)?;
            let valid = !sha.is_empty() && sha.len() <= 64 && sha.bytes().all(|byte| byte.is_ascii_hexdigit());
            if valid { Ok(sha) } else { Err(FetchError::Hub { reason: "it names no commit".to_owned() }) }
        };
        self.commit.get_or_try_init(find).await.map(String::as_str)
    }

    async fn get(&self, url: &Url) -> Result<(HeaderMap, Vec<u8>), FetchError> {
        let response = follow(&self.transport, &Method::GET, url, &self.headers()?).await?;
        let denied = matches!(response.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let response = success(response).await.map_err(|error| match error {
            FetchError::Status { status, body } if denied => {
                let credentials = match self.token {
                    Some(_) => "the token of Hugging Face",
                    None => "no token (set `HF_TOKEN`)",
                };
                let reason = body.unwrap_or_else(|| status.to_string());
                FetchError::Denied { credentials: credentials.to_owned(), reason }
            }
            error => error,
        })?;
        let headers = response.headers.clone();
        Ok((headers, response.collect(MAX_ANSWER).await?))
    }

    fn headers(&self) -> Result<HeaderMap, FetchError> {
        let Some(token) = &self.token else { return Ok(HeaderMap::new()) };
        let mut value = HeaderValue::try_from(format!("Bearer {}", &**token))
            .map_err(|_| FetchError::Hub { reason: "the token has letters that no header may have".to_owned() })?;
        value.set_sensitive(true);
        Ok([(AUTHORIZATION, value)].into_iter().collect())
    }

    fn url(&self, path: &str) -> Result<Url, FetchError> {
        Url::parse(&format!("{}{path}", self.endpoint))
            .map_err(|error| FetchError::Hub { reason: format!("invalid `HF_ENDPOINT`: {error}") })
    }
}

fn read<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<T, FetchError> {
    serde_json::from_slice(body).map_err(|error| FetchError::Hub { reason: error.to_string() })
}

fn remote_file(entry: Entry) -> RemoteFile {
    let Entry { path, oid, size, lfs, .. } = entry;
    let (size, tag, hash) = if let Some(LargeFile { oid, size }) = lfs {
        let mut hash = [0; 32];
        let known = read_hex(&oid, &mut hash);
        (size, oid, known.then_some(ContentHash::Sha256(hash)))
    } else {
        let mut hash = [0; 20];
        let known = read_hex(&oid, &mut hash);
        (size, oid, known.then_some(ContentHash::GitBlob(hash)))
    };
    RemoteFile { key: path, path: String::new(), size: Some(size), etag: Some(tag), hash }
}

/// Returns the address of the next page of a list, `<ADDRESS>; rel="next"`.
fn next_page(headers: &HeaderMap) -> Option<&str> {
    let links = headers.get(LINK)?.to_str().ok()?;
    let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
    Some(next.split_once('<')?.1.split_once('>')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hub_lists_have_pages() {
        let headers =
            |value: &'static str| [(LINK, HeaderValue::from_static(value))].into_iter().collect::<HeaderMap>();
        let link = "<https://h/api?cursor=1>; rel=\"prev\", <https://h/api?cursor=2>; rel=\"next\"";
        assert_eq!(next_page(&headers(link)), Some("https://h/api?cursor=2"));
        assert_eq!(next_page(&headers("<https://h>; rel=\"prev\"")), None);
        assert_eq!(next_page(&HeaderMap::new()), None);
    }

    #[test]
    fn hub_entries_have_their_hash() {
        let entries: Vec<Entry> = read(
            br#"[{"type":"file","oid":"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391","size":0,"path":"a/b.json"},
                {"type":"file","oid":"00","size":134,"path":"m.bin","lfs":{"oid":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size":7,"pointerSize":134}},
                {"type":"directory","oid":"1","size":0,"path":"a"}]"#,
        )
        .unwrap();
        let files: Vec<_> = entries.into_iter().filter(|entry| entry.kind == "file").map(remote_file).collect();
        assert!(matches!(files[0].hash, Some(ContentHash::GitBlob(_))));
        assert!(matches!(files[1].hash, Some(ContentHash::Sha256(_))));
        assert_eq!((files[1].size, files[1].key.as_str()), (Some(7), "m.bin"));
    }
}
