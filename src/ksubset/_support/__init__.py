"""What every floor may use and none of them is about; knows no floor itself."""
