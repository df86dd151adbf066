"""Records a driver's answers, without what identifies the machine, and replays them."""
