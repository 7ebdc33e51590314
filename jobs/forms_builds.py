"""Forms of builds: a registered binary, a repository, a build config."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from jobs.domain import cuda
from jobs.domain.buildspec import SERVER, TARGETS, BuildInputs
from jobs.domain.programs import Toolchain
from jobs.forms import PanelForm, path_input
from jobs.models import BuildConfig, Repository
from jobs.services.configs import ConfigData

FA_DEFAULT, FA_ALL, FA_LIST = "", "all", "list"


class BuildForm(PanelForm):
    """An existing llama-server binary."""

    name = forms.CharField(
        label=_("Name"),
        max_length=100,
        help_text=_("How profiles will call it, for example mainline b11434."),
    )
    path = forms.CharField(
        label=_("Path of llama-server"),
        max_length=4096,
        help_text=_(
            "The absolute path of the executable on this host. The panel runs it to learn what it can do."
        ),
        widget=path_input("/opt/llama.cpp/build/bin/llama-server"),
    )


class RepositoryForm(PanelForm):
    """A source of llama.cpp: a git address, or a folder of the host."""

    name = forms.CharField(label=_("Name"), max_length=100)
    kind = forms.ChoiceField(label=_("Kind"), choices=Repository.Kind.choices)
    url = forms.CharField(
        label=_("Address or folder"),
        max_length=2048,
        help_text=_(
            "https:// or ssh://, without a password in it; of a folder, its absolute path on this host."
        ),
        widget=path_input("https://github.com/ggml-org/llama.cpp.git"),
    )


class Ticked(forms.MultipleChoiceField):
    """Ticks among suggestions; what else is sent is checked with the inputs as a whole."""

    def valid_value(self, value: Any) -> bool:
        """Take every value."""
        return True


class RowsWidget(forms.Widget):
    """Rows of KEY and VALUE, drawn by the page itself."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[list[str]]:
        """Return the rows that are not empty, as [key, value]."""
        if not hasattr(data, "getlist"):
            return [list(pair) for pair in data.get(name, ())]
        keys, values = data.getlist(f"{name}-key"), data.getlist(f"{name}-value")
        rows = ([key.strip(), value.strip()] for key, value in zip(keys, values, strict=False))
        return [row for row in rows if row[0] or row[1]]


class ConfigForm(PanelForm):
    """What to build and how, always with data; what is left empty follows the source, CMake or the host."""

    name = forms.CharField(
        label=_("Name"), max_length=80, help_text=_("Builds are called by it, each with a number.")
    )
    repository = forms.ModelChoiceField(Repository.objects.all(), label=_("Repository"), empty_label=None)
    ref = forms.CharField(
        label=_("Branch, tag or commit"),
        max_length=200,
        required=False,
        help_text=_("Empty: the default branch."),
        widget=path_input("master"),
    )
    backend = forms.ChoiceField(label=_("Backend"), choices=BuildConfig.Backend.choices)
    architectures = Ticked(label=_("CUDA architectures"), required=False)
    more_architectures = forms.CharField(
        label=_("Further architectures"),
        max_length=200,
        required=False,
        help_text=_("Numbers as CMake writes them, with commas between them."),
        widget=path_input("90a"),
    )
    nvcc = forms.CharField(
        label=_("CUDA compiler"),
        max_length=4096,
        required=False,
        help_text=_("The path of nvcc. Empty: the one that CMake finds."),
        widget=path_input("/usr/local/cuda/bin/nvcc"),
    )
    host_compiler = forms.CharField(
        label=_("Host compiler"),
        max_length=4096,
        required=False,
        help_text=_("The path of g++ or clang++. Empty: the one that CMake finds."),
        widget=path_input("/usr/bin/g++"),
    )
    jobs = forms.IntegerField(label=_("Parallel jobs"), required=False, min_value=1, max_value=512)
    targets = Ticked(label=_("Programs"), required=False)
    fa_quants = forms.ChoiceField(
        label=_("Flash attention quants"),
        required=False,
        choices=(
            (FA_DEFAULT, _("the source's default")),
            (FA_ALL, _("all pairs (a long build)")),
            (FA_LIST, _("these pairs:")),
        ),
        help_text=_("For which types of the KV cache (K-V) fast GPU code is compiled."),
    )
    fa_pairs = forms.CharField(
        label=_("Pairs"), max_length=290, required=False, widget=path_input("q8_0-q4_0;f16-f16")
    )
    native = forms.BooleanField(
        label=_("For this machine's own processor"),
        required=False,
        help_text=_("Faster; the binary may not run on another machine."),
    )
    ccache = forms.BooleanField(
        label=_("Compiler cache"),
        required=False,
        help_text=_(
            "The next build of nearly the same source takes minutes less, where ccache is installed."
        ),
    )
    definitions = forms.Field(label=_("CMake definitions"), required=False, widget=RowsWidget())

    def __init__(self, data: Any, toolchain: Toolchain | None = None) -> None:
        super().__init__(data)
        self.toolchain = toolchain
        for text in ("name", "ref", "more_architectures", "nvcc", "host_compiler", "jobs", "fa_pairs"):
            self.fields[text].widget.attrs.update(autocomplete="off", spellcheck="false")
        self.fields["nvcc"].widget.attrs["list"] = "found-nvcc"
        self.fields["host_compiler"].widget.attrs["list"] = "found-compilers"
        for box in ("native", "ccache"):
            self.fields[box].widget.attrs["class"] = "form-check-input"

    def clean_fa_pairs(self) -> str:
        """Ask for the pairs where pairs were chosen."""
        pairs: str = self.cleaned_data["fa_pairs"].strip()
        if self.cleaned_data.get("fa_quants") == FA_LIST and not pairs and self._cuda():
            raise forms.ValidationError(_("Write the pairs, or choose another way."), code="required")
        return pairs

    def _cuda(self) -> bool:
        return self.cleaned_data.get("backend") == BuildConfig.Backend.CUDA

    @property
    def architecture_chips(self) -> list[dict[str, Any]]:
        """The architectures that can be ticked: those of the host's cards first, then the common ones."""
        own = self.toolchain.architectures if self.toolchain else ()
        ticked = self["architectures"].value() or []
        keys = dict.fromkeys([*own, *cuda.common_architectures(), *ticked])
        return [
            {"value": key, "names": cuda.names(key), "own": key in own, "ticked": key in ticked}
            for key in keys
        ]

    @property
    def target_boxes(self) -> list[dict[str, Any]]:
        """The programs that can be built; llama-server always is."""
        ticked = self["targets"].value() or []
        return [
            {"name": name, "ticked": name in ticked or name == SERVER, "fixed": name == SERVER}
            for name in TARGETS
        ]

    @property
    def definition_rows(self) -> list[list[str]]:
        """The rows of definitions, with an empty one at the end for one more."""
        return [*(self["definitions"].value() or []), ["", ""]]

    def config_data(self) -> ConfigData | None:
        """Return what the form gives, as far as it goes; None without a repository."""
        clean = self.cleaned_data
        repository = clean.get("repository")
        if repository is None:
            return None
        backend, for_cuda = clean.get("backend", ""), self._cuda()
        fa_quants = clean.get("fa_quants", "")
        inputs = BuildInputs(
            repository=repository.url,
            local=repository.local,
            ref=clean.get("ref", ""),
            backend=backend,
            architectures=self._architectures() if for_cuda else (),
            nvcc=clean.get("nvcc", "") if for_cuda else "",
            host_compiler=clean.get("host_compiler", ""),
            jobs=clean.get("jobs") or 0,
            targets=tuple(dict.fromkeys([SERVER, *clean.get("targets", ())])),
            fa_quants=(clean.get("fa_pairs", "") if fa_quants == FA_LIST else fa_quants) if for_cuda else "",
            native=bool(clean.get("native")),
            ccache=bool(clean.get("ccache")),
            definitions=tuple((key, value) for key, value in clean.get("definitions") or ()),
        )
        return ConfigData(clean.get("name", ""), repository, inputs)

    def _architectures(self) -> tuple[str, ...]:
        further = self.cleaned_data.get("more_architectures", "").replace(",", " ").replace(";", " ").split()
        return tuple(dict.fromkeys([*self.cleaned_data.get("architectures", ()), *further]))


def data_of(name: str, repository: Repository | None, inputs: BuildInputs) -> dict[str, Any]:
    """Return inputs as the form shows them."""
    listed = inputs.fa_quants not in (FA_DEFAULT, FA_ALL)
    return {
        "name": name,
        "repository": repository.pk if repository else None,
        "ref": inputs.ref,
        "backend": inputs.backend,
        "architectures": list(inputs.architectures),
        "nvcc": inputs.nvcc,
        "host_compiler": inputs.host_compiler,
        "jobs": inputs.jobs or "",
        "targets": list(inputs.targets),
        "fa_quants": FA_LIST if listed else inputs.fa_quants,
        "fa_pairs": inputs.fa_quants if listed else "",
        "native": inputs.native,
        "ccache": inputs.ccache,
        "definitions": [list(pair) for pair in inputs.definitions],
    }
