//! The hub of Hugging Face.

use std::path::PathBuf;

use super::files::read_small;
use super::variables::Variables;
use crate::storage::error::CredentialsError;
use crate::types::Secret;

/// Returns the token of the hub, if there is one.
pub(super) fn hub_token(variables: &Variables) -> Result<Option<Secret>, CredentialsError> {
    if let Some((_, token)) = variables.first(&["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]) {
        return Ok(Some(Secret::from(token.trim())));
    }
    let cache = variables.get("HF_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(variables.home()?.join(".cache/huggingface")));
    let path = variables.get("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(cache?.join("token")));
    let Some(path) = path else { return Ok(None) };
    Ok(read_small(&path)?.map(|token| Secret::from(token.trim())).filter(|token| !token.is_empty()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        Variables(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn tokens_come_from_the_environment_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "hush\n").unwrap();
        let token = hub_token(&variables(&[("HF_TOKEN_PATH", path.to_str().unwrap())])).unwrap();
        assert_eq!(token.as_deref(), Some("hush"));
        assert_eq!(hub_token(&variables(&[("HF_TOKEN", "own")])).unwrap().as_deref(), Some("own"));
        assert_eq!(hub_token(&variables(&[])).unwrap(), None);
    }
}
