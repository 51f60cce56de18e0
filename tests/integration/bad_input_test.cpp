#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/integration/training.h"

namespace coshard::testing {
namespace {

struct Ended {
  int code = -1;
  std::string out, err;
};

// The file is gone then.
std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  std::filesystem::remove(path);
  return text.str();
}

// The real program, through the shell.
Ended run_program(const std::string& program, const std::string& arguments) {
  const std::string out = temporary_path("out"), err = temporary_path("err");
  const std::string command = program + " " + arguments + " >" + out + " 2>" + err;
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, slurp(out), slurp(err)};
}

Ended run_train(const std::string& arguments) { return run_program(TRAIN_PROGRAM, arguments); }

// Exit code 2, one line on stderr that says `named`, nothing on stdout.
void expect_refused_by(const std::string& program, const std::string& arguments,
                       const std::string& named) {
  const Ended ended = run_program(program, arguments);
  EXPECT_EQ(ended.code, 2) << program << " " << arguments;
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  EXPECT_NE(ended.err.find(named), std::string::npos) << arguments << " said: " << ended.err;
  EXPECT_EQ(ended.out, "") << program << " " << arguments;
}

// And nothing written.
void expect_refused(const std::string& arguments, const std::string& named) {
  const std::string json = temporary_path("out.json"), trace = temporary_path("out.trace.json");
  expect_refused_by(TRAIN_PROGRAM, arguments + " --json " + json + " --trace " + trace, named);
  EXPECT_FALSE(std::filesystem::exists(json));
  EXPECT_FALSE(std::filesystem::exists(trace));
}

TEST(BadInput, NumbersThatDoNotFitAreNamed) {
  const TextFile text;
  const std::string with_text = "--text " + text.path() + " ";
  expect_refused(with_text + "--dim 100 --heads 8", "--dim 100 is not divisible by --heads 8");
  expect_refused(with_text + "--weave 5 --batch 4",
                 "--weave 5 is more than the 4 sequences of a rank (--batch 4)");
  expect_refused(with_text + "--weave 3 --batch 4 --plan dp --ranks 2",
                 "--weave 3 is more than the 2 sequences of a rank (--batch 4)");
  expect_refused(with_text + "--heads 8 --ranks 3", "--heads 8 is not divisible by --ranks 3");
  expect_refused(with_text + "--dim 24 --heads 8", "--dim 24 / --heads 8 = 3");
  expect_refused(with_text + "--ranks 0", "--ranks 0");
  expect_refused(with_text + "--ranks -1", "--ranks -1");
  expect_refused(with_text + "--threads -2", "--threads -2");
  expect_refused(with_text + "--progress-threads -1", "--progress-threads -1");
  for (const char* name : {"--batch", "--seq", "--layers", "--dim", "--heads", "--ffn"})
    expect_refused(with_text + name + " 0", std::string(name) + " 0");
  for (const char* name : {"--lr", "--temperature"})
    for (const char* bad : {"0", "nan", "inf"})
      expect_refused(with_text + name + " " + bad, std::string(name) + " " + bad + ": must be a ");
  expect_refused(with_text + "--ranks ''", "--ranks '': must be a number from 1 to 1024");
  expect_refused(with_text + "--steps 99999999999", "--steps 99999999999: must be a number");
  expect_refused(with_text + "--seed -1",
                 "--seed -1: must be a number from 0 to 184467440737095516");
}

TEST(BadInput, WhatTheMachineCannotHoldIsRefusedBeforeTheModelIsMade) {
  const TextFile text;
  const std::string with_text = "--text " + text.path() + " ";
  expect_refused(with_text + "--batch 1000000000", "--batch 1000000000 --ranks 2 take at least ");
  expect_refused(with_text + "--dim 1000000", "GiB; this machine has ");
  expect_refused(with_text + "--batch 2000000000", "--batch 2000000000: must be a number");
  expect_refused(with_text + "--layers 1000000", "--layers 1000000: must be a number from 1 to ");
}

TEST(BadInput, IsTheSameForEveryExample) {
  for (const char* program :
       {QUICKSTART_PROGRAM, OWN_STYLE_PROGRAM, OWN_OPERATOR_PROGRAM, ASIO_INTEROP_PROGRAM}) {
    expect_refused_by(program, "--communicator foo",
                      "unknown communicator 'foo'; this build has local");
    expect_refused_by(program, "--device gpu", "unknown device 'gpu'");
    expect_refused_by(program, "--ranks 100000", "--ranks 100000: must be a number from 1 to 1024");
    expect_refused_by(program, "--rank-threads 0", "--rank-threads 0: must be a number from 1 ");
    expect_refused_by(program, "--link 0GB/s",
                      "link 0GB/s: the rate must be from 0.001 to 1e21 B/s");
  }
  const std::string train = std::string(TRAIN_PROGRAM) + " --text /nowhere";
  expect_refused_by(train, "--rank-threads 0", "--rank-threads 0: must be a number from 1 ");
  for (const std::string option : {"--timeout", "--grace"})
    expect_refused_by(train, option + " soon", option + " soon: ");
}

TEST(BadInput, AnOptionThatAProgramLacksIsNamedWithTheOneThatWasMeant) {
  for (const char* program :
       {QUICKSTART_PROGRAM, OWN_STYLE_PROGRAM, OWN_OPERATOR_PROGRAM, ASIO_INTEROP_PROGRAM}) {
    expect_refused_by(program, "--rank 4", "; did you mean --ranks?");
    expect_refused_by(program, "--bogus", "unknown option --bogus of ");
    expect_refused_by(program, "4", "takes no argument '4'");
  }
  expect_refused_by(ASIO_INTEROP_PROGRAM, "--stpes 4", "did you mean --steps?");
  expect_refused_by(TRAIN_PROGRAM, "--text /nowhere --stepps 4",
                    "unknown option --stepps of train; did you mean --steps?");
  expect_refused_by(TRAIN_PROGRAM, "--link= --steps 2", "--link needs a value");
}

TEST(Examples, HaveHelpAndVersion) {
  for (const char* program : {QUICKSTART_PROGRAM, OWN_STYLE_PROGRAM, OWN_OPERATOR_PROGRAM,
                              ASIO_INTEROP_PROGRAM, TRAIN_PROGRAM}) {
    const Ended help = run_program(program, "--help"), version = run_program(program, "--version");
    EXPECT_EQ(help.code, 0) << program;
    EXPECT_NE(help.out.find("Usage: "), std::string::npos) << help.out;
    EXPECT_NE(help.out.find("--ranks INT"), std::string::npos) << help.out;
    EXPECT_EQ(version.code, 0) << program;
    EXPECT_EQ(version.out, "coshard " COSHARD_PROJECT_VERSION "\n") << program;
    EXPECT_EQ(help.err + version.err, "") << program;
  }
}

TEST(Examples, QuickstartPrintsWhatTheReadmeShows) {
  const Ended ended = run_program(QUICKSTART_PROGRAM, "--ranks 2");
  EXPECT_EQ(ended.code, 0) << ended.err;
  std::stringstream readme;
  readme << std::ifstream(README).rdbuf();
  EXPECT_NE(readme.str().find("quickstart --ranks 2\n" + ended.out), std::string::npos)
      << ended.out;
}

TEST(Examples, OwnOperatorKeepsLayoutsAndHasAGradient) {
  const Ended ended = run_program(OWN_OPERATOR_PROGRAM, "--ranks 2");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("clipped: f32[8] S(0) on tp=2"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("gradient: ["), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("sorted: f32[2,3] R on tp=2"), std::string::npos) << ended.out;
}

TEST(BadInput, AsioInteropTakesTheOptionsOfTheOthersAndNamesItsOwn) {
  const Ended ended = run_program(
      ASIO_INTEROP_PROGRAM, "--ranks 3 --steps 2 --rank-threads 2 --link 20us,1GB/s --timeout 30");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("\"ranks\": 3"), std::string::npos) << ended.out;
  for (const auto& [arguments, named] :
       {std::pair{"--steps 0", "--steps 0: must be a number from 1"},
        {"--port 70000", "--port 70000: must be a number"},
        {"--bogus", "--bogus"}})
    expect_refused_by(ASIO_INTEROP_PROGRAM, arguments, named);
}

TEST(BadInput, WordsThatAreNotKnownAreNamed) {
  const TextFile text;
  const std::string with_text = "--text " + text.path() + " ";
  expect_refused(with_text + "--dtype f16", "f16");
  expect_refused(with_text + "--plan pp", "pp");
  expect_refused(with_text + "--stepps 4", "--stepps");
  expect_refused(with_text + "--steps many", "many");
  expect_refused(with_text + "--link 0GB/s", "link 0GB/s: the rate must be from 0.001 to 1e21 B/s");
  expect_refused(with_text + "--plan ''", "--plan '': expected tp, tp-sp, dp or fsdp");
  expect_refused(with_text + "--link slow", "'slow'");
  expect_refused(with_text + "--link ''",
                 "link: expected a latency and a rate such as 20us,1GB/s, got ''");
  expect_refused(with_text + "--json ''", "--json needs a value");
  expect_refused_by(TRAIN_PROGRAM, with_text + "--trace-steps 5", "--trace-steps 5 needs --trace");
  expect_refused_by(TRAIN_PROGRAM, with_text + "--steps 0 --trace t.json", "--steps is 0");
  expect_refused_by(TRAIN_PROGRAM, with_text + "--measure-links --overlap off", "--overlap auto");
}

TEST(BadInput, TextsThatCannotBeUsedAreNamed) {
  expect_refused("--text /nowhere/at-all.txt", "/nowhere/at-all.txt");
  const TextFile empty(0), tiny(100);
  expect_refused("--text " + empty.path(), empty.path() + ": is empty");
  expect_refused("--text " + tiny.path() + " --seq 256", "100 bytes");
  expect_refused("--text /tmp", "--text /tmp: Is a directory");
}

TEST(BadInput, TheDefaultTextComesWithACommandThatMakesIt) {
  const std::string folder = temporary_path("empty-folder");
  std::filesystem::create_directory(folder);
  const std::string err = temporary_path("err");
  const std::string command = "cd " + folder + " && " + TRAIN_PROGRAM + " 2>" + err + " >/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 2);
  const std::string said = slurp(err);
  EXPECT_NE(said.find("data/kjv.txt"), std::string::npos) << said;
  EXPECT_NE(said.find("bible -f"), std::string::npos) << said;
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
}

TEST(BadInput, AnOutputThatCannotBeWrittenIsRefusedBeforeTraining) {
  const TextFile text;
  const Ended ended = run_train("--text " + text.path() + " --json /nowhere/figures.json");
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("/nowhere/figures.json"), std::string::npos) << ended.err;
  EXPECT_EQ(ended.out, "");
  const std::string both = temporary_path("both");
  expect_refused_by(TRAIN_PROGRAM, "--text " + text.path() + " --json " + both + " --trace " + both,
                    "--trace and --json are both " + both);
  const std::string folder = std::filesystem::path(both).parent_path().string();
  const std::string also = folder + "/./" + std::filesystem::path(both).filename().string();
  expect_refused_by(TRAIN_PROGRAM, "--text " + text.path() + " --json " + both + " --trace " + also,
                    "--trace and --json are both " + also);
  expect_refused_by(TRAIN_PROGRAM, "--text " + text.path() + " --json " + text.path(),
                    "--json " + text.path() + ": is the --text, which it would overwrite");
}

TEST(BadInput, AnOutputThatIsFullIsAnError) {
  const TextFile text;
  const std::string small = "--text " + text.path() +
                            " --ranks 1 --layers 1 --dim 16 --heads 2 --ffn 16 --seq 16 --batch 1 "
                            "--steps 1";
  for (const std::string& arguments : {small, std::string("--help")}) {
    const std::string err = temporary_path("err");
    const std::string command =
        std::string(TRAIN_PROGRAM) + " " + arguments + " >/dev/full 2>" + err;
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1) << arguments;
    EXPECT_NE(slurp(err).find("stdout: could not be written"), std::string::npos) << arguments;
  }
}

TEST(BadInput, ATraceThatCannotBeWrittenCostsNeitherTheResultNorTheFigures) {
  const TextFile text;
  const std::string json = temporary_path("figures.json");
  const Ended ended = run_train("--text " + text.path() +
                                " --ranks 1 --layers 1 --dim 16 --heads 2 --ffn 16 --seq 16 "
                                "--batch 1 --steps 2 --sample 0 --trace /dev/full --json " +
                                json);
  EXPECT_EQ(ended.code, 1);
  // Under TSan the OpenMP runtime of a library has a line of its own before it.
  EXPECT_TRUE(ended.err.ends_with("train: /dev/full: could not be written\n")) << ended.err;
  EXPECT_NE(ended.out.find("tokens/s"), std::string::npos) << ended.out;
  EXPECT_EQ(ended.out.find("trace: "), std::string::npos) << ended.out;
  EXPECT_TRUE(json_file_holds(json, "assert len(d['loss']) == 2"));
  std::filesystem::remove(json);
}

TEST(BadInput, HelpIsNoErrorAndHasAnExample) {
  const Ended ended = run_train("--help");
  EXPECT_EQ(ended.code, 0);
  EXPECT_NE(ended.out.find("build/examples/train --text"), std::string::npos);
  for (const char* name :
       {"--ranks", "--threads", "--layers", "--dim", "--heads", "--ffn", "--seq", "--batch",
        "--steps", "--lr", "--dtype", "--seed", "--text", "--trace", "--json", "--plan"})
    EXPECT_NE(ended.out.find(name), std::string::npos) << name;
}

TEST(BadInput, ADeviceOrCommunicatorThatIsNotThereIsNamed) {
  const TextFile text;
  const std::string with_text = "--text " + text.path() + " ";
  expect_refused(with_text + "--device gpu", "unknown device 'gpu'; expected cpu or cuda");
  expect_refused(with_text + "--communicator mpi",
                 "unknown communicator 'mpi'; this build has local");
}

// A build with CUDA on a machine without a driver, or without a device.
TEST(BadInput, ADeviceThatThisMachineLacksIsOneLineWithAHint) {
  if (!has_backend(DeviceKind::Cuda)) GTEST_SKIP() << "this build has no cuda device";
  if (device_count(DeviceKind::Cuda) > 0) GTEST_SKIP() << "this machine has a CUDA device";
  const TextFile text;
  const Ended ended = run_train("--device cuda --steps 1 --text " + text.path());
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  EXPECT_NE(ended.err.find("this machine has no CUDA"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("coshard doctor"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace coshard::testing
