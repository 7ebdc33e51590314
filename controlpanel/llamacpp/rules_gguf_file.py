"""Rules for files that are no GGUF, or not a whole one."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Rule

# All but one of these follow when a file is not what it should be.
_EFFECTS = ("not_gguf", "truncated_gguf", "file_unreadable")

FILE_RULES = (
    Rule(
        "lfs_pointer",
        (r"invalid magic characters:? '?vers",),
        N_("The file is a Git LFS pointer, not the model"),
        N_(
            "The repository was cloned without its large files: what lies there is a short text that names "
            "the model. Run “git lfs install” and “git lfs pull” in the folder, or download the model from "
            "the Models page."
        ),
        explains=_EFFECTS,
    ),
    Rule(
        "html_saved_as_gguf",
        (r"invalid magic characters:? '?(?:<!d|<!D|<ht|<HT|<\?x|<he|\s*<!|\s*<h)",),
        N_("The file is a web page, not the model"),
        N_(
            "A page of a website (often /blob/ instead of /resolve/, or a sign-in page) was saved under the "
            "model's name. Delete the file and download it from the Models page, or use the /resolve/ link; "
            "then compare the size with the one on the site."
        ),
        explains=_EFFECTS,
    ),
    Rule(
        "error_answer_saved",
        (r"invalid magic characters:? '?(?:\{\"|\[\{|Entr|Inva|Acce|Unau|Not |Forb|Too )",),
        N_("The file is an error answer of a server, not the model"),
        N_(
            "The server answered with an error (no access, wrong address), and a downloader saved that under "
            "the model's name. Open the file to read what it says, delete it, and download the model again."
        ),
        explains=_EFFECTS,
    ),
    Rule(
        "old_ggml_format",
        (r"invalid magic characters:? '?(?:tjgg|lmgg|fmgg|algg|ggjt|ggmf|ggml|ggla|GGML)",),
        N_("The file has the old GGML format, which llama.cpp gave up in 2023"),
        N_("Download a GGUF file of the same model: the old format cannot be converted without loss."),
        explains=_EFFECTS,
    ),
    Rule(
        "not_gguf",
        (
            r"gguf_init\w*: invalid magic characters:? '?(?P<magic>[^',]{1,12})",
            r"invalid magic number: (?P<magic>\w{1,12})",
        ),
        N_("The file is not a GGUF file: it begins with “%(magic)s”"),
        N_(
            "It may be packed (zip, 7z), a safetensors or PyTorch file, or damaged. Choose a .gguf file; "
            "“manage.py gguf FILE” says what it looks like."
        ),
        rank=COMMON,
    ),
    Rule(
        "gguf_version",
        (
            r"GGUFv1 is no longer supported",
            r"this GGUF file is version (?P<version>\d+) but this software only supports up to",
            r"bad GGUF version: (?P<version>\d+)",
        ),
        N_("This build cannot read this version of the GGUF format"),
        N_(
            "Version 1 files are from 2023: download a newer file of the model. For a version that is newer "
            "than the build, use a newer build."
        ),
        explains=_EFFECTS,
    ),
    Rule(
        "gguf_big_endian",
        (r"extremely large, is there a mismatch between the host and model endianness",),
        N_("The file was made for big-endian machines"),
        N_("Download a file of the model without “be” or “big-endian” in its name."),
        explains=_EFFECTS,
    ),
    Rule(
        "file_not_found",
        (r"failed to open GGUF file '(?P<file>[^']*)' \(No such file or directory\)",),
        N_("There is no file at the path of a model or projector"),
        N_(
            "It was moved, renamed or deleted, or the path has a typing error: %(file)s. Choose the model "
            "again, or put the file back. In a container, check that its folder is mounted."
        ),
        explains=("file_unreadable",),
    ),
    Rule(
        "file_not_permitted",
        (r"failed to open GGUF file '(?P<file>[^']*)' \((?:Permission denied|Operation not permitted)\)",),
        N_("The server may not read the model's file"),
        N_(
            "Give the user that runs the panel the right to read %(file)s and to enter the folders above it "
            "(“chmod a+r”, “chmod a+x” on folders)."
        ),
        explains=("file_unreadable",),
    ),
    Rule(
        "truncated_gguf",
        (
            r"tensor '(?P<tensor>[^']*)' data is not within the file bounds",
            r"failed to read (?:header|key-value pairs|tensor info)",
            r"failed to read tensor data",
            r"exceeds remaining file size \d+ bytes",
            r"error loading model: unexpectedly reached end of file",
        ),
        N_("The model's file is not complete"),
        N_(
            "A download ended early, or the file is still being written. Compare its size and SHA-256 with "
            "the model's page, resume the download or download the file again."
        ),
        explains=("damaged_gguf", "file_unreadable"),
    ),
    Rule(
        "file_unreadable",
        (
            r"failed to read magic\s*$",
            r"failed to open GGUF file '(?P<file>[^']*)'",
        ),
        N_("The model's file is empty, a folder, or cannot be opened"),
        N_(
            "Give the path of the .gguf file itself. If it is, look at its size: 0 bytes means that a "
            "download never began. Download it again."
        ),
        rank=COMMON,
    ),
    Rule(
        "damaged_gguf",
        (
            r"tensor '[^']*' has invalid data",
            r"found tensors with invalid data",
            r"duplicate key '[^']*' for tensors",
            r"duplicate tensor name '",
            r"key '[^']*' has invalid GGUF type",
            r"encountered (?:length_error|bad_alloc error) while reading",
            r"number of (?:tensors|key value pairs) is -?\d+ but must be in",
            r"string length \d+ exceeds maximum",
            r"alignment \d+ is not a power of 2",
            r"has invalid number of (?:dimensions|elements): ",
            r"elements per row, not a multiple of block size",
            r"tensor '[^']*' has offset \d+, expected \d+",
            r"gguf\S*: tensor '[^']*' size (?:overflow|\d+ overflows)",
        ),
        N_("The model's file is damaged"),
        N_(
            "Its header or its data contradict the format. Compare the SHA-256 with the model's page and "
            "download the file again; if a fresh copy is damaged too, check the memory and the disk."
        ),
    ),
)
