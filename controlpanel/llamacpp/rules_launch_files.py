"""Rules for paths that a server cannot use: the model's file and the working folder."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import Near, Rule
from controlpanel.llamacpp.rules_build_changes import put

_PROJECTOR = r"clip_init: |clip_model_loader: |CLIP model from|failed to load multimodal model"

FILE_RULES = (
    Rule(
        "model_path_wrong",
        (r"failed to open GGUF file '(?P<file>[^']{1,1000})' \((?:errno )?No such file or directory\)",),
        N_("There is no file at the model's path"),
        N_(
            "%(file)s was moved, renamed or deleted, or the path has a typing error. Choose the model again "
            "or put the file back. A path without “/” in front counts from the server's working folder; in a "
            "container, check that the models' folder is mounted."
        ),
        unless=(r"-(?!00001)\d{5}-of-\d{5}\.gguf'",),
        unless_near=(Near(_PROJECTOR, after=3),),
        explains=("file_unreadable", "model_not_loaded"),
    ),
    Rule(
        "file_not_permitted",
        (r"failed to open GGUF file '(?P<file>[^']{1,1000})' \(errno (?:Permission denied|Operation not)",),
        N_("The server may not read the model's file"),
        N_(
            "Give the user that runs the panel the right to read %(file)s and to enter the folders above it "
            "(“chmod a+r”, “chmod a+x” on folders). In a container, look at which user it runs as."
        ),
        explains=("file_unreadable", "model_not_loaded"),
    ),
    Rule(
        "draft_model_path_wrong",
        (r"failed to load draft model,? '(?P<file>[^']{1,1000})'",),
        N_("The draft model cannot be loaded"),
        N_(
            "Check the path %(file)s in the extra arguments, or take the draft model out. The lines above in "
            "the log say what is wrong with it."
        ),
        explains=("model_path_wrong", "file_unreadable"),
    ),
    Rule(
        "permission_workdir",
        (
            r"filesystem error: .{0,200}(?:Permission denied|Operation not permitted) "
            r"\[(?P<path>[^\]]{0,500})\]",
        ),
        N_("The server may not read a folder that it needs: %(path)s"),
        N_(
            "Most often it is the folder that it was started in (./). Give the user that runs the panel "
            "the right to it, set WorkingDirectory of the service to a folder that it may read, or loosen "
            "the confinement (snap, SELinux, AppArmor)."
        ),
        explains=("aborted",),
    ),
    Rule(
        "mmap_failed",
        (r"mmap failed: (?P<why>[^\n]{1,120})",),
        N_("The model's file cannot be mapped into memory"),
        N_(
            "A limit of memory (ulimit -v, the container's) is too small for the file, or its file system "
            "does not support mapping. Set the field “Load mode” to none, or raise the limit."
        ),
        put("load_mode", "none"),
        explains=("model_not_loaded",),
    ),
)
