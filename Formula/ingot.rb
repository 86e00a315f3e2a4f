class Ingot < Formula
  desc "Serves language models to many clients at once, from one small daemon"
  # The running daemon's own page: `brew style` wants an address, and none is invented.
  homepage "http://127.0.0.1:6468/"
  # tools/release writes url and sha256 of a release here.
  license "Apache-2.0"
  # The repository that this file was tapped from.
  head "file://#{File.expand_path("..", __dir__)}", using: :git, branch: "main"

  depends_on "meson" => :build
  depends_on "ninja" => :build
  depends_on "pkgconf" => :build
  depends_on "jansson"
  depends_on "libwebsockets"
  depends_on "libyaml"
  depends_on "openssl@3"
  depends_on "pcre2"
  depends_on "utf8proc"
  uses_from_macos "python" => [:build, :test]
  uses_from_macos "curl"
  uses_from_macos "libedit"
  uses_from_macos "sqlite"
  uses_from_macos "zlib"

  def install
    system "meson", "setup", "build", "-Dtests=false", "-Dbench=false", "-Dptx=", "-Dmpi=disabled",
           "--sysconfdir=#{etc}", "--localstatedir=#{var}", *std_meson_args
    system "meson", "compile", "-C", "build", "--verbose"
    system "meson", "install", "-C", "build"
    # A path that an upgrade keeps: the folder of this version is deleted later.
    inreplace "etc/ingot.yaml", "#path: []", "path: [\"#{opt_lib}/ingot/modules\"]"
    pkgetc.install "etc/ingot.yaml"
    pkgshare.install "tests/tiny_model.py"
  end

  def caveats
    <<~EOS
      The configuration is #{pkgetc}/ingot.yaml; upgrades keep it.
      Start the daemon, now and at login: brew services start ingot
      Download a model, for example this small one: ingot pull smollm2-135m
      Then talk to it: ingot chat
    EOS
  end

  service do
    run [opt_bin/"ingotd", "--config", etc/"ingot/ingot.yaml"]
    keep_alive true
    process_type :interactive
    # Longer than server.drain_timeout, 20 s.
    stop_timeout 30
    log_path var/"log/ingot.log"
    error_log_path var/"log/ingot.log"
  end

  test do
    port = free_port
    system "python3", pkgshare/"tiny_model.py", "tiny.gguf", "--kind", "script"
    (testpath/"ingot.yaml").write <<~YAML
      server:
        port: #{port}
      modules:
        path: ["#{opt_lib}/ingot/modules"]
      kvcache:
        arena: 16MiB
      ledger:
        path: #{testpath}/ledger.db
      models:
        - name: tiny
          path: #{testpath}/tiny.gguf
    YAML
    system bin/"ingotd", "--config", testpath/"ingot.yaml", "--check-config"
    pid = spawn bin/"ingotd", "--config", testpath/"ingot.yaml"
    begin
      url = "http://127.0.0.1:#{port}"
      ask = "curl --silent --fail --retry 60 --retry-delay 1 --retry-connrefused"
      modules = JSON.parse(shell_output("#{ask} #{url}/v1/ingot/status"))["modules"]
      assert_equal %w[attention kvcache moe recurrent], modules.map { |m| m["name"] }.sort
      request = JSON.generate(model: "tiny", prompt: "Hello", max_tokens: 1, temperature: 0)
      reply = JSON.parse(shell_output("#{ask} -H 'Content-Type: application/json' " \
                                      "-d '#{request}' #{url}/v1/completions"))
      assert_equal 1, reply["usage"]["completion_tokens"]
    ensure
      Process.kill "TERM", pid
      Process.wait pid
    end
    assert_equal 0, $CHILD_STATUS.exitstatus
    assert_match version.to_s, shell_output("#{bin}/ingotd --version") if build.stable?
  end
end
