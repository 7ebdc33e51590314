"""What is exported of cards and hosts: the last samples, as long as they are not old."""

from jobs.domain.exported import Families, Labels, scaled, truth
from jobs.domain.gpu import MIB, THROTTLE_WORDS, WITHOUT_GPU, GpuSample, own_memory_mib
from jobs.domain.hostload import HostLoad
from jobs.services.exporter import Scrape

PERCENT = 0.01
MHZ = 1e6


def card_labels(host_slug: str, card: GpuSample) -> dict[str, str]:
    """Return the labels of all series of a card."""
    return {"host": host_slug, "gpu": str(card.index), "uuid": card.uuid or "", "name": card.name or ""}


def export_gpus(scrape: Scrape) -> None:
    """Add the cards of all hosts; of old samples only their age."""
    families = scrape.families
    for host, sample in scrape.gpus or ():
        if sample is None:
            continue
        labels = {"host": host.slug}
        age = max(scrape.now - (sample.since or sample.time), 0.0)
        families.gauge("gpu_sample_age_seconds", "Age of the last sample of the host's cards.", labels, age)
        if sample.stale_since(scrape.now) is not None:
            continue
        if sample.gpus.problem not in WITHOUT_GPU:
            up = truth(sample.gpus.problem is None)
            families.gauge("gpu_driver_up", "Whether the host's cards can be read.", labels, up)
            versions = {"driver": sample.gpus.driver or "", "cuda": sample.gpus.cuda or ""}
            families.info("gpu_driver_info", "Versions of the host's NVIDIA driver.", {**labels, **versions})
        for card in sample.gpus.gpus:
            _export_card(families, card_labels(host.slug, card), card)


def _export_card(families: Families, labels: Labels, card: GpuSample) -> None:
    def gauge(name: str, help: str, value: float | None, factor: float = 1.0) -> None:
        families.gauge(f"gpu_{name}", help, labels, scaled(value, factor))

    gauge("lost", "Whether the card has fallen off the bus.", truth(card.lost))
    gauge("utilization_ratio", "Share of time in which the card computed.", card.utilization, PERCENT)
    busy = "Share of time in which the card's memory was read or written."
    gauge("memory_controller_utilization_ratio", busy, card.memory_utilization, PERCENT)
    gauge("memory_total_bytes", "Memory of the card.", card.memory_total_mib, MIB)
    gauge("memory_used_bytes", "Memory of the card in use.", card.memory_used_mib, MIB)
    gauge("memory_reserved_bytes", "Memory that the driver keeps.", card.memory_reserved_mib, MIB)
    own = None if card.lost else own_memory_mib(card)
    gauge("memory_own_bytes", "Memory of the card held by servers of the panel.", own, MIB)
    gauge("temperature_celsius", "Temperature of the card.", card.temperature)
    gauge("power_watts", "Power that the card draws.", card.power_w)
    gauge("power_limit_watts", "Power that the card may draw.", card.power_limit_w)
    gauge("clock_hertz", "Clock of the processors.", card.clock_mhz, MHZ)
    gauge("memory_clock_hertz", "Clock of the memory.", card.memory_clock_mhz, MHZ)
    gauge("fan_ratio", "Speed of the fan, of its highest.", card.fan, PERCENT)
    gauge("pcie_link_generation", "Generation of the PCIe link now.", card.pcie_gen)
    gauge("pcie_link_width_lanes", "Lanes of the PCIe link now.", card.pcie_width)
    gauge("pcie_receive_bytes_per_second", "What the card receives over PCIe.", card.pcie_rx_mib_s, MIB)
    gauge("pcie_transmit_bytes_per_second", "What the card sends over PCIe.", card.pcie_tx_mib_s, MIB)
    for reason in THROTTLE_WORDS if card.throttle is not None else ():
        active = truth(reason in (card.throttle or ()))
        why = "Whether the card's clocks are held back for this reason."
        families.gauge("gpu_throttle_active", why, {**labels, "reason": reason}, active)
    for severity, count in (("corrected", card.ecc_corrected), ("uncorrected", card.ecc_uncorrected)):
        errors = "Errors of the card's memory since the driver was loaded."
        families.counter("gpu_ecc_errors_total", errors, {**labels, "severity": severity}, count)


def export_hosts(scrape: Scrape) -> None:
    """Add how busy hosts are; of old samples only their age."""
    for host, sample in scrape.loads or ():
        if sample is None:
            continue
        labels = {"host": host.slug}
        age = max(scrape.now - sample.time, 0.0)
        scrape.families.gauge("host_sample_age_seconds", "Age of the host's last sample.", labels, age)
        if sample.stale_since(scrape.now) is None:
            _export_load(scrape.families, labels, sample.load)


def _export_load(families: Families, labels: Labels, load: HostLoad) -> None:
    def gauge(name: str, help: str, value: float | None, factor: float = 1.0) -> None:
        families.gauge(f"host_{name}", help, labels, scaled(value, factor))

    gauge("cpu_utilization_ratio", "Share of all cores that was busy.", load.cpu, PERCENT)
    gauge("cpu_cores", "Cores of the host.", load.cores)
    gauge("memory_total_bytes", "Main memory, or the container's limit.", load.memory_total_mib, MIB)
    gauge("memory_used_bytes", "Main memory that programs could not get.", load.memory_used_mib, MIB)
    gauge("swap_total_bytes", "Swap space.", load.swap_total_mib, MIB)
    gauge("swap_used_bytes", "Swap space in use.", load.swap_used_mib, MIB)
    gauge("disk_total_bytes", "Size of the disk with the panel's data.", load.disk_total_mib, MIB)
    gauge("disk_free_bytes", "Free space on the disk with the panel's data.", load.disk_free_mib, MIB)
    gauge("load1", "Load average of the last minute.", load.load_1m)
    gauge("load5", "Load average of the last five minutes.", load.load_5m)
    gauge("load15", "Load average of the last fifteen minutes.", load.load_15m)
