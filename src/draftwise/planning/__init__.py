"""Before anything is built: measure acceptance and costs, predict the speed, recommend."""
