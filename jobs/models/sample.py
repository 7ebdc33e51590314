"""Samples: the history of numbers of a host, its cards and its servers."""

from django.db import models

from jobs.models.host import Host


class SampleBlock(models.Model):
    """A stretch of one subject's numbers, packed by jobs.domain.series.

    `level` 0 holds 10 points of 1 s, 1 holds 60 of 10 s, 2 holds 12 of 5 min; `start` is in seconds since
    1970, a multiple of what a row of its level spans.
    """

    # The constraint's index begins with the host.
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="samples", db_index=False)
    subject = models.CharField(max_length=100)  # "gpu:<uuid or index>", "host", "server:<profile pk>"
    level = models.PositiveSmallIntegerField()
    start = models.BigIntegerField()
    data = models.BinaryField()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["host", "level", "start", "subject"], name="one_block_per_time"),
        )

    def __str__(self) -> str:
        return f"{self.subject} {self.level} {self.start}"
