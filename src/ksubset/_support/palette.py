"""Okabe and Ito's colours, told apart by colour-blind readers too, with a grey; and an olive beside them."""

__all__ = ["BLACK", "BLUE", "COLOURS", "GREEN", "GREY", "OLIVE", "ORANGE", "PURPLE", "SKY", "VERMILLION"]

COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#000000", "#999999")
BLUE, SKY, ORANGE, VERMILLION, GREEN, PURPLE, BLACK, GREY = COLOURS
OLIVE = "#7F7F00"
