"""Autoencoders whose codes are subsets: k of n items in each of several groups."""

from ksubset.applications.vae.data import binarize
from ksubset.applications.vae.figure import draw
from ksubset.applications.vae.model import SubsetAutoencoder, SubsetEncoder, dense

__all__ = ["SubsetAutoencoder", "SubsetEncoder", "binarize", "dense", "draw"]
