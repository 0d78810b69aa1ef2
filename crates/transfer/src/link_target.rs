//! The target of a symbolic link that is sent: a relative path that stays beneath the folder that was named.
//!
//! Both sides check it: the sender so that it names the link at once, the receiver because the sender may be
//! hostile. Invariant: a target goes up first and then only down, so it leads where its text says even if
//! folders on its way down are links of the same job, which keep to the same rule.

use super::RelativePath;

/// Longest target in bytes: PATH_MAX of Linux.
pub(super) const MAX_TARGET: usize = 4096;
/// Longest component in bytes: NAME_MAX of Linux.
const MAX_COMPONENT: usize = 255;

/// Why a target is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TargetError {
    #[error("its target is absolute")]
    Absolute,
    #[error("its target leads out of the folder that was named")]
    Outside,
    #[error("its target has `..` behind a name")]
    UpAgain,
    #[error("its target is empty, too long, or holds a NUL")]
    Malformed,
}

/// Checks the target of a link at `path`.
pub(super) fn check(path: &RelativePath, target: &[u8]) -> Result<(), TargetError> {
    if target.is_empty() || target.len() > MAX_TARGET || target.contains(&0) {
        return Err(TargetError::Malformed);
    }
    if target.starts_with(b"/") || (cfg!(windows) && target.iter().any(|byte| matches!(byte, b'\\' | b':'))) {
        return Err(TargetError::Absolute);
    }
    // Folders between the one that was named and the link. The first cannot be left.
    let (mut depth, mut down) = (path.split().0.count(), false);
    for component in target.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." if down => return Err(TargetError::UpAgain),
            b".." => depth = depth.saturating_sub(1),
            _ if component.len() > MAX_COMPONENT => return Err(TargetError::Malformed),
            _ => down = true,
        }
        if depth == 0 {
            return Err(TargetError::Outside);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Encoding;
    use super::*;

    fn of(path: &str, target: &[u8]) -> Result<(), TargetError> {
        check(&RelativePath::parse(path.as_bytes(), Encoding::Utf8).unwrap(), target)
    }

    #[test]
    fn a_target_goes_up_and_then_down_and_stays_inside() {
        for target in [&b"x"[..], b"./x", b"x/", b"x//y", b".", b"x/y/...", b"\xff"] {
            assert_eq!(of("a/l", target), Ok(()), "{target:?}");
        }
        assert_eq!(of("a/b/l", b"../x"), Ok(()));
        assert_eq!(of("a/b/l", b".."), Ok(()));
        for target in [&b".."[..], b"../a", b"../x", b"./../a/x", b"../../x"] {
            assert_eq!(of("a/l", target), Err(TargetError::Outside), "{target:?}");
        }
        assert_eq!(of("a/b/l", b"../../a"), Err(TargetError::Outside));
        // A link that was named itself leads to nothing beneath it.
        assert_eq!(of("l", b"x"), Err(TargetError::Outside));
        // `s` may be a link to `.`, and then this would leave the folder.
        assert_eq!(of("a/l", b"s/s/s/../../../../etc"), Err(TargetError::UpAgain));
        for absolute in [&b"/"[..], b"/etc/passwd", b"//x"] {
            assert_eq!(of("a/l", absolute), Err(TargetError::Absolute), "{absolute:?}");
        }
        for malformed in [&b""[..], b"x\0y", &[b'x'; 256], &b"x/".repeat(2049)] {
            assert_eq!(of("a/l", malformed), Err(TargetError::Malformed));
        }
    }
}
