//! Quick files: small files of the person, put into sandboxes when those are made, or later by hand.
//!
//! Invariant: the text of a sensitive one is only in the sealed store and, from then on, in the sandboxes it was
//! put into; no answer of the API, no log and no row has it.

use super::presets::named_error;
use super::sandboxes::{HOME, guest_error};
use crate::http::problem::{ApiError, ApiResult};
use crate::state::App;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use handler_engine::GuestHandle;
use handler_store::named::NamedFiles;
use handler_types::preset::{QuickFile, QuickFileView};
use handler_types::provider::SecretRef;
use handler_types::sandbox::CreateSandbox;
use handler_types::{ProblemCode, SecretValue};

/// Most bytes of one.
const MOST: usize = 48 * 1024;

fn files(app: &App) -> NamedFiles<QuickFile> {
    NamedFiles::new(app.settings.layout.config.join("quick-files"))
}

fn sealed_path(name: &str) -> String {
    format!("quick-files/{name}")
}

/// All of them; sensitive ones without their text.
///
/// # Errors
/// An unreadable folder.
pub fn list(app: &App) -> ApiResult<Vec<QuickFileView>> {
    let listed = files(app).list().map_err(|e| named_error(&e))?;
    Ok(listed
        .into_iter()
        .map(|entry| {
            let (file, problems) = match entry.document {
                Ok(file) => (Some(file), Vec::new()),
                Err(problem) => (None, vec![problem]),
            };
            QuickFileView {
                name: entry.name,
                file,
                problems,
            }
        })
        .collect())
}

/// One of them.
///
/// # Errors
/// 404; settings that are wrong.
pub fn get(app: &App, name: &str) -> ApiResult<QuickFile> {
    let found = files(app).get(name).map_err(|e| named_error(&e))?;
    found.ok_or_else(|| {
        ApiError::new(
            ProblemCode::NotFound,
            format!("there is no quick file `{name}`; `handler quick-file list` shows them"),
        )
    })
}

/// Makes or replaces one.
///
/// # Errors
/// A bad path or mode, no text, too much text.
pub async fn put(app: &App, name: &str, mut file: QuickFile) -> ApiResult<QuickFileView> {
    let refuse = |text: String| ApiError::new(ProblemCode::Invalid, text);
    target(&file.path)?;
    mode(&file)?;
    let content = file.content.take();
    let content = content.ok_or_else(|| refuse("content: the file's text".into()))?;
    if content.len() > MOST {
        return Err(refuse(format!("content: at most {MOST} bytes")));
    }
    if file.sensitive {
        // One line of printable characters, whatever the text is.
        let sealed = SecretValue::new(format!("b64:{}", STANDARD.encode(&content)));
        let note = Some(format!("text of the quick file {name}"));
        let path = sealed_path(name);
        // A wrong name is told before anything is stored.
        files(app).get(name).map_err(|e| named_error(&e))?;
        let stored = app.secrets.set(&path, sealed, note).await;
        stored.map_err(|e| super::secrets::store_error(&e))?;
    } else {
        file.content = Some(content);
    }
    files(app).put(name, &file).map_err(|e| named_error(&e))?;
    Ok(QuickFileView {
        name: name.to_owned(),
        file: Some(file),
        problems: Vec::new(),
    })
}

/// Removes one.
///
/// # Errors
/// 404.
pub async fn remove(app: &App, name: &str) -> ApiResult<()> {
    if !files(app).remove(name).map_err(|e| named_error(&e))? {
        return Err(ApiError::new(
            ProblemCode::NotFound,
            format!("there is no quick file `{name}`"),
        ));
    }
    let removed = app.secrets.remove(&sealed_path(name)).await;
    removed.map_err(|e| super::secrets::store_error(&e))?;
    Ok(())
}

/// What is put into a new sandbox: read before it is made, so that a wrong one leaves nothing half-made.
#[derive(Debug, Default)]
pub(super) struct Load(Vec<Piece>);

struct Piece {
    path: String,
    mode: u32,
    content: Bytes,
}

impl std::fmt::Debug for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Piece")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Load {
    /// The default ones, those that were named, and the request's own files, which come last and win.
    ///
    /// # Errors
    /// An unknown name, a file that is wrong.
    pub(super) async fn of(app: &App, request: &CreateSandbox) -> ApiResult<Self> {
        let mut load = Self::default();
        for view in list(app)? {
            let is_named = request.quick_files.contains(&view.name);
            match view.file {
                Some(file) if is_named || (file.default && !request.no_default_files) => {
                    load.0.push(piece(app, &view.name, &file).await?);
                }
                None if is_named => {
                    let text = view.problems.join("; ");
                    return Err(ApiError::new(ProblemCode::NotConfigured, text));
                }
                _ => {}
            }
        }
        for name in &request.quick_files {
            get(app, name)?;
        }
        for (path, content) in &request.files {
            if content.len() > MOST {
                let text = format!("files: {path} has more than {MOST} bytes: upload it instead");
                return Err(ApiError::new(ProblemCode::Invalid, text));
            }
            load.0.push(Piece {
                path: target(path)?,
                mode: 0o644,
                content: Bytes::from(content.clone().into_bytes()),
            });
        }
        Ok(load)
    }

    /// Whether there is nothing to put in.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One more, over others of the same path.
    pub(super) fn push(&mut self, path: String, mode: u32, content: String) {
        self.0.push(Piece {
            path,
            mode,
            content: Bytes::from(content.into_bytes()),
        });
    }

    /// Writes them.
    ///
    /// # Errors
    /// What the guest refuses; the first one ends it.
    pub(super) async fn put_into(self, guest: &GuestHandle) -> ApiResult<()> {
        for piece in self.0 {
            write(guest, piece).await?;
        }
        Ok(())
    }
}

/// Puts one into a sandbox that runs.
///
/// # Errors
/// 404; what the guest refuses.
pub async fn copy_into(app: &App, name: &str, sandbox: &str) -> ApiResult<()> {
    let file = get(app, name)?;
    let (_, guest) = super::sandboxes::view_and_guest(app, sandbox).await?;
    write(&guest, piece(app, name, &file).await?).await
}

async fn write(guest: &GuestHandle, piece: Piece) -> ApiResult<()> {
    let content = futures::stream::iter([Ok::<_, String>(piece.content)]);
    guest
        .write_file(&piece.path, Some(piece.mode), true, content)
        .await
        .map_err(guest_error)?;
    Ok(())
}

async fn piece(app: &App, name: &str, file: &QuickFile) -> ApiResult<Piece> {
    let content = match (&file.content, file.sensitive) {
        (Some(content), _) => content.clone().into_bytes(),
        (None, true) => unseal(app, name).await?,
        (None, false) => Vec::new(),
    };
    Ok(Piece {
        path: target(&file.path)?,
        mode: mode(file)?,
        content: Bytes::from(content),
    })
}

async fn unseal(app: &App, name: &str) -> ApiResult<Vec<u8>> {
    let value = super::secrets::resolve(app, &SecretRef::Secret(sealed_path(name))).await?;
    let coded = value.expose().strip_prefix("b64:").unwrap_or_default();
    STANDARD.decode(coded).map_err(|_| {
        ApiError::new(
            ProblemCode::NotConfigured,
            format!("the sealed text of the quick file `{name}` is broken: set it again"),
        )
    })
}

/// The absolute path inside.
pub(super) fn target(path: &str) -> ApiResult<String> {
    let absolute = match path.strip_prefix("~/") {
        Some(rest) => format!("{HOME}/{rest}"),
        None if path.starts_with('/') => path.to_owned(),
        None => format!("{HOME}/{path}"),
    };
    let is_wrong = path.is_empty()
        || path.contains('\0')
        || path.ends_with('/')
        || absolute.split('/').any(|part| part == "..");
    if is_wrong {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            format!("`{path}`: a file's path, absolute or below the home (`~/…`), without `..`"),
        ));
    }
    Ok(absolute)
}

fn mode(file: &QuickFile) -> ApiResult<u32> {
    match &file.mode {
        None if file.sensitive => Ok(0o600),
        None => Ok(0o644),
        Some(text) => match u32::from_str_radix(text.trim_start_matches("0o"), 8) {
            Ok(bits) if bits <= 0o777 => Ok(bits),
            _ => Err(ApiError::new(
                ProblemCode::Invalid,
                format!("mode: `{text}` is no octal permission bits such as 0600"),
            )),
        },
    }
}
