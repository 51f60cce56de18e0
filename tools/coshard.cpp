// main() of the `coshard` command.
#include "tools/command.h"

int main(int argc, char** argv) { return coshard::tools::command(argc, argv); }
