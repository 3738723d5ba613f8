//! A gRPC client, which has HTTP/2, trailers and roots of its own.

use super::origin::Server;
use super::{Place, VALUE, has_module};
use anyhow::ensure;

const CLIENT: &str = "import grpc,os\n\
    key=os.environ['TOKEN']\n\
    channel=grpc.secure_channel(os.environ['HERE'],grpc.ssl_channel_credentials())\n\
    answer,call=channel.unary_unary('/echo.Echo/Say').with_call(key.encode(),\
    metadata=[('authorization','Bearer '+key)],timeout=60)\n\
    print(answer.decode(),dict(call.trailing_metadata())['x-said'])";

#[tokio::test]
async fn a_grpc_client_calls_and_its_secret_is_given() -> anyhow::Result<()> {
    if !has_module("grpc") {
        handler_testkit::skip("a_grpc_client_calls", "there is no python3-grpcio");
        return Ok(());
    }
    let place = Place::with(Server::Grpc, VALUE).await?;
    let script = format!("/usr/bin/python3 -c \"{CLIENT}\"");
    let outputs = place.both(&script, "/echo.Echo/Say").await?;
    // What the server says, in the message and in a trailer, is the value; inside it is the stand-in.
    let wanted = format!("{0} {0}", place.phantom);
    ensure!(outputs == [wanted.as_str(), &wanted], "{outputs:?}");
    place.end().await
}
